package strategy

import (
	"strings"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Symmetry says which nodes a strategy cannot tell apart but by their names, so that drivers with many nodes need not
// offer all of them. A driver that offers fewer gets the very same decisions.
type Symmetry uint8

// The symmetries of strategies.
const (
	// Asymmetric strategies are offered every node that fits.
	Asymmetric Symmetry = iota
	// Interchangeable are nodes of the same site, power profile, capacity, free resources, speed, PUE and benchmarks
	// that all run something or all run nothing, where no meter is looked at. Of these the first by name is taken, or
	// none.
	Interchangeable
	// InTurn is the order of the names: the first node after [sched.Snapshot.Last] is taken, and the first of all if
	// there is none. What a job keeps of its slack for going on again depends on the slowest node, so this holds only
	// where nothing is put off.
	InTurn
)

// Symmetry returns the symmetry of g under a policy.
func (g *Greedy) Symmetry(p *sched.Policy) Symmetry {
	left, when, _ := strings.Cut(g.name, "+")
	switch {
	case left == "round-robin" && when == "":
		return InTurn
	case g.traits&seeded != 0 && p.Seed != 0:
		return Asymmetric // its ties are broken by names
	case g.traits&alike != 0:
		return Interchangeable
	}
	return Asymmetric
}

// NodeLocal reports whether g, under a policy, orders two nodes for a job as it orders them for any job that asks for
// the same, as long as nothing happens on either: a driver that remembers the order may use it again for the next job.
func (g *Greedy) NodeLocal(p *sched.Policy) bool {
	return g.traits&relative == 0 && (g.traits&seeded == 0 || p.Seed == 0)
}
