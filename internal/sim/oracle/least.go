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

// Family is what a policy may do to a job. Policies are compared within one.
type Family uint8

// The families.
const (
	FamilyNonPreemptive Family = iota // put its start off, once
	FamilyInterruptible               // suspend and resume it too, where the job allows it
	FamilyElastic                     // and choose on how many replicas it runs, where it is elastic
)

// ErrNotExact is why [Least] has no answer: jobs of the scenario touch each other, or a node's power is not that of its
// jobs, so that the sum over jobs is no optimum, and what was saved cannot be put in relation to it.
var ErrNotExact = errors.New("the least carbon is not known exactly")

// errCrowded is why jobs may touch each other.
var errCrowded = fmt.Errorf("%w: jobs may be in each other's way", ErrNotExact)

// Least returns the least carbon that a policy of the family could have reached on the scenario, with everything
// known in advance and no delay violated. Jobs that are not marked as interruptible are not suspended in either
// family; the work that resumes repeat is not counted, so that with a restart cost it is what the best policy could
// do without one.
//
// It is exact, and an error that is [ErrNotExact] where it would not be: for several sites; where a node draws power
// without jobs, or power that is not proportional to what its jobs ask for; where nodes differ; and where jobs might
// be in each other's way. In families that suspend it is then [Fluid], which may be less than can be reached.
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
	at := sched.Node{Site: n.Site} // the simulator accounts with the PUE of the site
	return energy.Grams(total * at.Facility() / energy.JoulesPerKWh), nil
}

// fluid returns the fluid bound of a scenario whose nodes are like n.
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

// minOf returns the least integral of c over the time that j runs, weighted with its replicas relative to the least
// number of them.
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

// power is what j adds to the power of n, whatever else runs there.
func power(n *sched.Node, j *sched.Job) energy.Watts {
	p := n.Profile.Power(1) * energy.Watts(float64(j.Request.MilliCPU)/float64(n.Capacity.MilliCPU))
	if n.Capacity.GPU > 0 {
		p += n.Profile.GPUMax * energy.Watts(j.Request.GPU)
	}
	return p
}

// uniform returns a node that stands for all: what a job costs must not depend on where it runs.
func uniform(s *sim.Scenario) (*sched.Node, error) {
	if len(s.Sites) != 1 || len(s.Nodes) == 0 {
		return nil, fmt.Errorf("%w: the scenario has %d sites and %d nodes, want one site and a node or more",
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
			return nil, fmt.Errorf("%w: the power of node %s is not proportional to what its jobs ask for", ErrNotExact,
				n.Name)
		}
		if math.Abs(perCore(n)-perCore(first)) > 1e-12*perCore(first) || speed(n) != speed(first) ||
			n.Profile.GPUMax != first.Profile.GPUMax {
			return nil, fmt.Errorf("%w: nodes %s and %s differ in power or speed", ErrNotExact, first.Name, n.Name)
		}
	}
	return first, nil
}

// proportional reports whether n draws power for its jobs alone, and as much as they ask for.
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
	for _, point := range p.Curve { // between two points a curve is straight
		if math.Abs(float64(point.Power)-point.Utilisation*full) > 1e-12*full {
			return false
		}
	}
	return true
}

// uncapacitated makes sure that every job has room whenever it may run. On one node that is exact; several nodes might
// leave no room for a job though they have it together, so one of them must have it for all.
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
	return fmt.Errorf("%w: up to %d millicores may be wanted at a time, and no node has room for all", errCrowded,
		most.MilliCPU)
}

// selected makes sure that no job asks for another node than the one that has room.
func selected(s *sim.Scenario, node int) error {
	for i := range s.Jobs {
		if !s.Jobs[i].Fits(&s.Nodes[node]) {
			return fmt.Errorf("%w: job %s does not fit on node %s", ErrNotExact, s.Jobs[i].ID, s.Nodes[node].Name)
		}
	}
	return nil
}
