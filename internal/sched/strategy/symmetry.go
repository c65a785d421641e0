package strategy

import (
	"strings"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Symmetry describes the nodes that a strategy only distinguishes by name, so that drivers with many nodes can
// offer fewer of them and still get the same decisions.
type Symmetry uint8

// Symmetries of strategies.
const (
	// Asymmetric strategies must be offered every feasible node.
	Asymmetric Symmetry = iota
	// Interchangeable strategies do not distinguish nodes with the same site, power profile, capacity, free
	// resources, speed, PUE and benchmarks that are either all empty or all busy, if no meter readings are used.
	// Only the first of these nodes by name can be selected.
	Interchangeable
	// InTurn strategies select the first node by name after [sched.Snapshot.Last], or the first node if there is
	// none. This only applies if no start is delayed, because the slack reserved for restarts depends on the
	// slowest node.
	InTurn
)

// Symmetry returns the symmetry of g under a policy.
func (g *Greedy) Symmetry(p *sched.Policy) Symmetry {
	left, when, _ := strings.Cut(g.name, "+")
	switch {
	case left == "round-robin" && when == "":
		return InTurn
	case g.traits&seeded != 0 && p.Seed != 0:
		return Asymmetric // ties are broken by name
	case g.traits&alike != 0:
		return Interchangeable
	}
	return Asymmetric
}

// NodeLocal reports whether g, under a policy, orders two nodes in the same way for all jobs with the same request
// while both nodes are unchanged. A driver may then reuse the order for the next job.
func (g *Greedy) NodeLocal(p *sched.Policy) bool {
	return g.traits&relative == 0 && (g.traits&seeded == 0 || p.Seed == 0)
}
