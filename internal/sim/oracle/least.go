package oracle

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// Family is the set of actions that a policy may apply to a job. Policies are compared within a family.
type Family uint8

// The families.
const (
	FamilyNonPreemptive Family = iota // delay the start, once
	FamilyInterruptible               // also suspend and resume interruptible jobs
	FamilyElastic                     // also choose the number of replicas of elastic jobs
)

// ErrNotExact is returned by [Least] if jobs of the scenario may affect each other or the power of a node is not
// the sum over its jobs. The sum over jobs is then not the optimum, and savings cannot be related to it.
var ErrNotExact = errors.New("the minimum emissions are not known exactly")

// errCrowded is returned if jobs may compete for capacity.
var errCrowded = fmt.Errorf("%w: jobs may compete for capacity", ErrNotExact)

// Least returns the minimum emissions of any policy of the family on the scenario, with perfect knowledge and
// without exceeding any allowed delay. Jobs that are not interruptible are not suspended in any family. The work
// repeated by resumes is not counted, so with a restart cost, the result is the minimum without that cost.
//
// Least is exact. It returns an [ErrNotExact] error for several sites, for nodes with idle power or power that is
// not proportional to requests, for nodes that differ, and if jobs may compete for capacity. In the last case,
// families that suspend jobs use [Fluid], which is a lower bound.
func Least(s *sim.Scenario, f Family) (energy.Grams, error) {
	n, err := uniform(s)
	if err != nil {
		return 0, err
	}
	total := 0.0
	if err := uncapacitated(s, f); err != nil {
		if f == FamilyNonPreemptive || n.Capacity.GPU > 0 || !errors.Is(err, errCrowded) {
			return 0, err
		}
		return fluid(withinPolicy(s), n, f)
	}
	s = withinPolicy(s)
	for i := range s.Jobs {
		j := s.Jobs[i]
		j.Duration = n.Runtime(&j)
		cost, err := minOf(n.Site.Carbon.Series, &j, f)
		if err != nil {
			return 0, err
		}
		total += cost * float64(power(n, &j))
	}
	at := sched.Node{Site: n.Site} // the simulator uses the PUE of the site
	return energy.Grams(total * at.Facility() / energy.JoulesPerKWh), nil
}

// fluid returns the fluid bound of a scenario with nodes like n.
func fluid(s *sim.Scenario, n *sched.Node, f Family) (energy.Grams, error) {
	cores := 0.0
	for i := range s.Nodes {
		cores += float64(s.Nodes[i].Capacity.MilliCPU) / 1000
	}
	jobs := slices.Clone(s.Jobs)
	for i := range jobs {
		j := &jobs[i]
		if j.Duration = n.Runtime(j); f != FamilyElastic {
			j.Scaling = nil
		}
	}
	cost, err := Fluid(n.Site.Carbon.Series, cores, jobs)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrNotExact, err)
	}
	perCore := n.Profile.Power(1) / energy.Watts(float64(n.Capacity.MilliCPU)/1000)
	at := sched.Node{Site: n.Site}
	return energy.Grams(cost * float64(perCore) * at.Facility() / energy.JoulesPerKWh), nil
}

// minOf returns the minimum integral of c over the run time of j, weighted by its number of replicas relative to
// the minimum number.
func minOf(c *grid.Series, j *sched.Job, f Family) (cost float64, err error) {
	switch {
	case f == FamilyElastic && j.Scaling != nil && j.Interruptible:
		if cost, err = Elastic(c, j); err != nil {
			return 0, fmt.Errorf("%w: job %s: %w", ErrNotExact, j.ID, err)
		}
	case f != FamilyNonPreemptive && j.Interruptible:
		cost = Interruptible(c, j)
	default:
		_, cost = NonPreemptive(c, j)
	}
	return cost, nil
}

// power returns the power that j adds to n, independent of other jobs.
func power(n *sched.Node, j *sched.Job) energy.Watts {
	p := n.Profile.Power(1) * energy.Watts(float64(j.Request.MilliCPU)/float64(n.Capacity.MilliCPU))
	if n.Capacity.GPU > 0 {
		p += n.Profile.GPUMax * energy.Watts(j.Request.GPU)
	}
	return p
}

// uniform returns a representative node. The cost of a job must not depend on its node.
func uniform(s *sim.Scenario) (*sched.Node, error) {
	if len(s.Sites) != 1 || len(s.Nodes) == 0 {
		return nil, fmt.Errorf("%w: the scenario has %d sites and %d nodes, want one site and at least one node",
			ErrNotExact, len(s.Sites), len(s.Nodes))
	}
	first := &s.Nodes[0]
	if first.Site.Carbon.Series == nil {
		return nil, fmt.Errorf("%w: site %s has no carbon intensity", ErrNotExact, first.Site.Name)
	}
	perCore := func(n *sched.Node) float64 { return float64(n.Profile.Power(1)) / float64(n.Capacity.MilliCPU) }
	speed := func(n *sched.Node) float64 { return cmp.Or(n.Speed, 1) }
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if !proportional(n) {
			return nil, fmt.Errorf("%w: the power of node %s is not proportional to the requests of its jobs",
				ErrNotExact, n.Name)
		}
		if math.Abs(perCore(n)-perCore(first)) > 1e-12*perCore(first) || speed(n) != speed(first) ||
			n.Profile.GPUMax != first.Profile.GPUMax {
			return nil, fmt.Errorf("%w: nodes %s and %s differ in power or speed", ErrNotExact, first.Name, n.Name)
		}
	}
	return first, nil
}

// proportional reports whether the power of n is proportional to the requests of its jobs, without idle power.
func proportional(n *sched.Node) bool {
	p := n.Profile
	if p.Power(0) != 0 || p.Sleep != 0 || p.WakeUp != 0 || n.Capacity.GPU > 0 && p.GPUIdle != 0 {
		return false
	}
	full := float64(p.Power(1))
	for _, u := range [...]float64{1e-3, 0.1, 0.25, 0.5, 0.75, 0.9} {
		if math.Abs(float64(p.Power(u))-u*full) > 1e-12*full {
			return false
		}
	}
	for _, point := range p.Curve { // a curve is linear between two points
		if math.Abs(float64(point.Power)-point.Utilisation*full) > 1e-12*full {
			return false
		}
	}
	return true
}

// uncapacitated returns an error unless every job fits whenever it may run. The check is exact for one node. With
// several nodes, the total capacity may be fragmented, so one of them must have the capacity for all jobs.
func uncapacitated(s *sim.Scenario, f Family) error {
	most := s.Peak(func(j *sched.Job) (sched.Job, time.Duration) {
		sized := *j
		if f == FamilyElastic && j.Scaling != nil {
			sized = j.On(j.Scaling.Most())
		}
		return sized, s.Nodes[0].Runtime(&sized)
	})
	for i := range s.Nodes {
		if most.Within(s.Nodes[i].Capacity) {
			return selected(s, i)
		}
	}
	return fmt.Errorf("%w: jobs may request up to %d millicores at a time, which do not fit on any node", errCrowded,
		most.MilliCPU)
}

// selected returns an error if a job does not fit on the given node.
func selected(s *sim.Scenario, node int) error {
	for i := range s.Jobs {
		if !s.Jobs[i].Fits(&s.Nodes[node]) {
			return fmt.Errorf("%w: job %s does not fit on node %s", ErrNotExact, s.Jobs[i].ID, s.Nodes[node].Name)
		}
	}
	return nil
}
