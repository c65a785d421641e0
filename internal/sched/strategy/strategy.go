package strategy

import (
	"maps"
	"slices"
	"strings"

	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Strategy makes scheduling decisions. It must be deterministic: the same snapshot results in the same plan.
type Strategy interface {
	Plan(*sched.Snapshot) sched.Plan
}

// placing is a placement with its properties.
type placing struct {
	cost        placement.NodeCost
	traits      traits
	description string // shown to users
}

// traits describe the inputs of the cost of a placement.
type traits uint8

const (
	alike    traits = 1 << iota // depends only on the node properties listed at [Interchangeable]
	relative                    // depends on more than the job's request and the node, see [Greedy.NodeLocal]
	live                        // depends on live power, which changes from one job to the next
	seeded                      // depends on the policy's seed, which breaks ties by name
	crowds                      // depends on [sched.Snapshot.Ahead] and, if there are any, on [sched.Node.Ends]
)

var placements = map[string]placing{
	"balanced": {placement.Balanced, alike, "the most similar free fractions of CPU and memory afterwards"},
	"carbon": {
		placement.Carbon, alike,
		"the lowest emissions over the run: energy × carbon intensity × PUE, with weighted terms for price, wait and " +
			"load",
	},
	"ecsched-dp": {placement.DotProduct, relative, ""},
	"ecsched-k8s": {
		placement.AuthorsStock, alike,
		"the baseline of ECSched's authors: the lowest request relative to the free resources, balanced",
	},
	"ecsched-ml": {placement.HighestLoad, 0, ""},
	"energy": {
		placement.LowestEnergy, alike | crowds,
		"the lowest additional energy at the meter, including the wake-up of an empty node; leaves room for the next " +
			"large jobs",
	},
	"exec": {placement.Exec, relative | live, "the most remaining power according to live readings (Escheduler)"},
	"fcfs": {placement.FirstFit, alike, "the first node by name with sufficient capacity"},
	"hybrid": {
		placement.Hybrid, relative | live,
		"performance and efficiency, from benchmarks of the class of work and live power readings",
	},
	"hybrid-idle": {placement.HybridIdle, relative | live, "like hybrid, but from benchmarks only, busy nodes last"},
	"least-allocated": {
		placement.LeastAllocated, alike | seeded,
		"scores like the default kube-scheduler: the most free resources, balanced",
	},
	"max-min": {placement.Soonest, 0, ""},
	"min-min": {placement.Soonest, 0, ""},
	"most-allocated": {
		placement.MostAllocated, alike | seeded, "scores like kube-scheduler with the MostAllocated strategy",
	},
	"peaks": {placement.Peaks, alike, "the smallest increase in power by an exponential model of the node (PEAKS)"},
	"profile": {
		placement.Profile, alike | relative,
		"performance and efficiency, from benchmarks of the class of work only",
	},
	"random":      {placement.Random, relative, "a random node, determined by the seed"},
	"round-robin": {placement.RoundRobin, relative, "one node after the other, by name"},
}

// Names returns the sorted names that [New] accepts on the left and on the right of "+".
func Names() (wheres, whens []string) {
	wheres = slices.AppendSeq(slices.Collect(maps.Keys(placements)), maps.Keys(matchers))
	slices.Sort(wheres)
	return slices.Compact(wheres), slices.Sorted(maps.Keys(sched.StartRules))
}

// When returns the start rule in the name of a strategy, or "now" if there is none. Use [Holds] to determine
// whether a strategy may delay starts, because a throttled strategy may do so with every start rule.
func When(name string) string {
	_, when, _ := parts(name)
	return when
}

// parts splits the name of a strategy into placement, start rule and order: where+when/order.
func parts(name string) (where, when, order string) {
	where, when, both := strings.Cut(name, "+")
	if !both {
		return where, "now", ""
	}
	when, order, ordered := strings.Cut(when, "/")
	if ordered && order == "" {
		order = "/" // not a valid name
	}
	return where, when, order
}

// New returns the strategy with the given name: a placement, or a placement and a start rule as in "carbon+window".
// Without a start rule, jobs start immediately. A start rule may be followed by the order in which the queue is
// served, as in "balanced+now/shortest". By default, jobs are served in order of submission.
func New(name string) (*Greedy, error) { return newGreedy(name, placements) }

// newGreedy is like New, with the given placements.
func newGreedy(name string, where map[string]placing) (*Greedy, error) {
	left, right, last := parts(name)
	whole, matches := matchers[left]
	if !matches {
		whole.alone = left
	}
	placing, okWhere := where[whole.alone]
	rule, okWhen := sched.StartRules[right]
	order, okOrder := sched.QueueOrders[last]
	if !okWhere || !okWhen || last != "" && !okOrder {
		return nil, unknown(name, okWhere)
	}
	if matches && order != nil {
		return nil, unordered(name, left)
	}
	if rule.Together && order != nil {
		return nil, unordered(name, right)
	}
	return &Greedy{
		name: name, cost: placing.cost, startRule: rule, traits: where[left].traits, match: whole.match, order: order,
	}, nil
}

// Greedy serves a queue job by job. The start rule selects the start and the cost function selects the node. Some
// placements match the whole queue with the nodes instead.
type Greedy struct {
	name      string
	cost      placement.NodeCost
	startRule sched.StartRule
	traits    traits
	match     func(b *batch)   // nil if jobs are placed one by one
	order     sched.QueueOrder // nil for the order of submission
}

// String returns the name of g.
func (g *Greedy) String() string { return g.name }

// LeavesRoom reports whether g uses the jobs that are expected to arrive. If there are any in a snapshot, all feasible
// nodes must be offered, because the expected ends of jobs on the nodes matter too.
func (g *Greedy) LeavesRoom() bool { return g.traits&crowds != 0 && g.match == nil }

// ReadsLive reports whether g uses live power readings.
func (g *Greedy) ReadsLive() bool { return g.traits&live != 0 }

// Plan implements [Strategy]. Jobs are served by submission time and then ID, or in the order of g, independent of
// their order in the queue.
func (g *Greedy) Plan(s *sched.Snapshot) sched.Plan {
	if len(s.Queue) == 1 {
		d, _ := g.decide(s, &s.Queue[0])
		return sched.Plan{d}
	}
	plan, _ := g.PlanWithin(s, mincost.NeverStop)
	return plan
}

// planInOrder decides on one job after another.
func (g *Greedy) planInOrder(s *sched.Snapshot, stop func() bool) (sched.Plan, Optimality) {
	proof := Optimality{Whole: true}
	plan := g.inTurn(s, func(j *sched.Job) (sched.Decision, bool) {
		proof.Whole = proof.Whole && !stop()
		return sched.Decision{Job: j.ID}, !proof.Whole
	}, func(sched.Resources) {})
	return plan, proof
}

// inTurn decides on one job after another, unless gate has already decided on it. Each placed job reduces the
// capacity for later ones, and placed is called with its request.
func (g *Greedy) inTurn(
	s *sched.Snapshot, gate func(j *sched.Job) (d sched.Decision, decided bool), placed func(sched.Resources),
) sched.Plan {
	plan := make(sched.Plan, len(s.Queue))
	work := *s
	nodes := sliceutil.Map(s.Nodes, func(n *sched.Node) sched.Node { return *n }) // copied before they are modified
	feasible := make([]*sched.Node, 0, len(nodes))
	for _, i := range s.InOrder(g.order) {
		job := &s.Queue[i]
		var decided bool
		if plan[i], decided = gate(job); decided {
			continue
		}
		feasible = feasible[:0]
		for k := range nodes {
			if job.Fits(&nodes[k]) {
				feasible = append(feasible, &nodes[k])
			}
		}
		work.Nodes = feasible
		d, on := g.decide(&work, job)
		if on != nil {
			sized := job.On(d.Replicas)
			k := 0
			for &nodes[k] != on {
				k++
			}
			nodes = sched.PlaceOn(nodes, k, &sized)
			work.Last = d.Node
			placed(sized.Request)
		}
		plan[i] = d
	}
	return plan
}

// decide places one job on s.Nodes, which must all be feasible, or holds it. It also returns the node.
func (g *Greedy) decide(s *sched.Snapshot, j *sched.Job) (sched.Decision, *sched.Node) {
	if g.chooses(j) {
		return g.decideScaled(s, j)
	}
	window, reason, again := g.startRule.Ask(s, j)
	d := sched.Decision{Job: j.ID, Window: window, Again: again, Reason: reason}
	if d.Held(s.Now) || j.Running { // a running job stays on its node
		return d, nil
	}
	best, ok := g.place(s, j, &d)
	if ok && best == nil && reason.Kind == sched.Cheapest {
		d.Reason.Kind = sched.NoRoom // otherwise the start rule's reason is more specific
	}
	return d, best
}

// place completes d, a decision to start j now, with the cheapest node. best is nil if j fits on no node. ok is
// false if the strategy has no opinion; d.Reason then contains the reason.
func (g *Greedy) place(s *sched.Snapshot, j *sched.Job, d *sched.Decision) (best *sched.Node, ok bool) {
	at, why, ok := placement.Cheapest(s, j, g.cost)
	switch {
	case !ok:
		d.Reason = sched.Reason{Kind: why}
	case at >= 0:
		best = s.Nodes[at]
		d.Node = best.Name
		d.Window.End = s.Now.Add(best.Runtime(j))
		d.Cost = s.Estimate(j, best, d.Window)
	}
	return best, ok
}

// Costs returns the cost of the job on each of s.Nodes, for scoring and explanations. dst is reused if it is large
// enough. ok is false if there is no opinion.
func (g *Greedy) Costs(s *sched.Snapshot, j *sched.Job, dst []float64) (costs []float64, ok bool) {
	costs = dst[:0]
	costing := placement.NewCosting(s, j)
	for _, n := range s.Nodes {
		c, known := g.cost(&costing, n)
		if !known {
			return nil, false
		}
		costs = append(costs, c)
	}
	return costs, true
}

// Holds reports whether g may delay starts.
func (g *Greedy) Holds() bool { return g.startRule.Holds }

// Interrupts reports whether g may suspend running jobs that are interruptible. With other strategies, started jobs
// run to completion.
func (g *Greedy) Interrupts() bool { return g.startRule.Interrupts }

// Scales reports whether g selects the number of replicas of elastic jobs while they run.
func (g *Greedy) Scales() bool { return g.startRule.Scale != nil || g.Replans() }

// Clairvoyant reports whether g requires the true run times of jobs. Such strategies serve as a reference for the
// others.
func (g *Greedy) Clairvoyant() bool { return g.startRule.Clairvoyant }

// Families returns the names of the start rules that run jobs to completion, and of the rules that may suspend
// them. Savings are compared within a family.
func Families() (starting, suspending []string) {
	for name, rule := range sched.StartRules {
		if rule.Interrupts {
			suspending = append(suspending, name)
		} else {
			starting = append(starting, name)
		}
	}
	slices.Sort(starting)
	slices.Sort(suspending)
	return starting, suspending
}
