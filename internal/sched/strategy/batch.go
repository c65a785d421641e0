package strategy

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// matcher is a placement that considers the whole queue.
type matcher struct {
	match       func(b *batch) // places all jobs of a batch that may run now
	alone       string         // placement with the same cost for a single job
	description string
}

const (
	saysInRounds = "whole queue in rounds of min-cost flow, "
	saysByPrices = "whole queue in one step with prices for scarce resources, "
)

var matchers = map[string]matcher{
	"ecsched-carbon": {matchInRounds, "carbon", saysInRounds + "at the lowest cost of carbon"},
	"ecsched-dp":     {matchInRounds, "ecsched-dp", saysInRounds + "by product of request and free capacity (ECSched)"},
	"ecsched-energy": {matchInRounds, "energy", saysInRounds + "at the lowest cost of energy"},
	"ecsched-ml":     {matchInRounds, "ecsched-ml", saysInRounds + "filling the fullest nodes first (ECSched)"},
	"flow-carbon":    {matchByPrices, "carbon", saysByPrices + "at the lowest cost of carbon"},
	"flow-dp":        {matchByPrices, "ecsched-dp", saysByPrices + "by product of request and free capacity"},
	"flow-energy":    {matchByPrices, "energy", saysByPrices + "at the lowest cost of energy"},
	"flow-ml":        {matchByPrices, "ecsched-ml", saysByPrices + "filling the fullest nodes first"},
	"max-min":        {maxMin, "max-min", "whole queue: latest completion first, each job on its fastest node"},
	"min-min":        {minMin, "min-min", "whole queue: earliest completion first, each job on its fastest node"},
}

// batch is a queue that is being planned. Its nodes are copies, and placed jobs use their capacity.
type batch struct {
	snapshot sched.Snapshot // with the current nodes
	nodes    []sched.Node   // sorted by name
	cost     placement.NodeCost
	plan     sched.Plan
	open     []int       // positions in the queue of jobs that may run now and have no node yet, by submission
	stop     func() bool // reports whether the time is up
	proof    Optimality

	kinds        []sched.Job // groups of equivalent jobs, see [batch.group]
	kindOf       []int       // index into kinds by position in the queue, for open jobs
	maxNodePairs int         // [maxNodePairs], smaller in tests
}

// Optimality describes the quality of a plan for a whole queue.
type Optimality struct {
	Whole  bool    // whether the strategy completed within the available time
	Gap    float64 // (cost − bound)/|bound|, with costs before the first job was placed
	HasGap bool    // whether a bound is known and not 0
}

// Batches reports whether g requires the whole queue and all nodes, because its decision on one job depends on the
// other jobs.
func (g *Greedy) Batches() bool { return g.match != nil || g.order != nil || g.startRule.Together }

// CountsAll reports whether g also requires nodes without free capacity, because it plans later runs on them.
func (g *Greedy) CountsAll() bool { return g.startRule.Together }

// Replans reports whether g includes running interruptible jobs when it plans the queue.
func (g *Greedy) Replans() bool { return g.startRule.Together && g.startRule.Interrupts }

// Guards reports whether g requires the shortages of jobs (see [sched.Shortages]).
func (g *Greedy) Guards() bool { return g.startRule.Guarded }

// Alone returns the strategy that decides on each job individually, at the same cost as g, without matching the
// whole queue.
func (g *Greedy) Alone() *Greedy {
	if g.match == nil {
		return g
	}
	left, _, _ := parts(g.name)
	alone := *g
	alone.match, alone.name = nil, matchers[left].alone+g.name[len(left):]
	alone.traits = placements[matchers[left].alone].traits
	return &alone
}

// PlanWithin is like [Greedy.Plan], for callers that provide all nodes and limit the time. The feasibility of nodes
// is checked with [sched.Job.Fits] even for a single job. PlanWithin repeatedly calls stop, which reports whether
// the time is up. Strategies that match the whole queue then place the remaining jobs one by one at the same cost,
// unless the jobs differ too much for this to be fast. Other strategies have no opinion on the remaining jobs.
func (g *Greedy) PlanWithin(s *sched.Snapshot, stop func() bool) (sched.Plan, Optimality) {
	if g.match == nil && !g.together(s) {
		return g.planInOrder(s, stop)
	}
	b := newBatch(s, g.cost, stop)
	g.planBatch(s, b)
	return b.plan, b.proof
}

// planBatch applies the start rule to every job, and matches the jobs that may start now.
func (g *Greedy) planBatch(s *sched.Snapshot, b *batch) {
	when := g.startRule
	if g.together(s) {
		when = sched.StartRule{Start: sched.StartNow, Holds: true} // only holds jobs while a budget is exhausted
	}
	for _, i := range s.InOrder(nil) {
		job := &s.Queue[i]
		window, reason, again := when.Ask(s, job)
		if g.chooses(job) { // the rule selects the replicas at each decision while the job runs
			window, reason, again, _ = g.scaled(s, job)
		}
		b.plan[i] = sched.Decision{Job: job.ID, Window: window, Again: again, Reason: reason}
		if !b.plan[i].Held(s.Now) && (!job.Running || g.Replans() && job.Interruptible) {
			b.open = append(b.open, i)
		}
	}
	if g.together(s) {
		b.planTogether(&g.startRule)
	}
	if g.match != nil {
		g.match(b)
	} else {
		g.placeOpen(b)
	}
	for _, i := range b.open {
		switch d := &b.plan[i]; d.Reason.Kind {
		case sched.Cheapest, sched.Planned, sched.FlatSignal, sched.ScarceCapacity:
			if d.Node == "" {
				d.Reason.Kind = sched.NoRoom
			}
		}
	}
}

// placeOpen places the open jobs one by one.
func (g *Greedy) placeOpen(b *batch) {
	s, open := &b.snapshot, make(map[*sched.Job]int, len(b.open))
	for _, i := range b.open {
		open[&s.Queue[i]] = i
	}
	alone := *g
	alone.startRule = sched.StartRule{Start: sched.StartNow}
	placed := alone.inTurn(s, func(j *sched.Job) (sched.Decision, bool) {
		_, ok := open[j]
		return sched.Decision{}, !ok
	}, func(sched.Resources) {})
	for _, i := range b.open {
		planned := b.plan[i]
		b.plan[i] = placed[i]
		b.plan[i].Again, b.plan[i].Replicas = planned.Again, planned.Replicas
		if planned.Reason.Kind != sched.Cheapest {
			b.plan[i].Reason = planned.Reason
		}
	}
}

func newBatch(s *sched.Snapshot, cost placement.NodeCost, stop func() bool) *batch {
	b := &batch{
		snapshot: *s, nodes: sched.Unfold(s.Nodes), cost: cost, plan: make(sched.Plan, len(s.Queue)), stop: stop,
		proof:        Optimality{Whole: true},
		maxNodePairs: maxNodePairs,
	}
	codec.ShareProfiles(b.nodes)
	b.snapshot.Nodes = sliceutil.Refs(b.nodes)
	return b
}

func (b *batch) job(i int) *sched.Job { return &b.snapshot.Queue[i] }

// stopped reports whether the time is up.
func (b *batch) stopped() bool {
	if b.proof.Whole && b.stop() {
		b.proof.Whole = false
	}
	return !b.proof.Whole
}

// fitting returns the given jobs that fit on at least one node.
func (b *batch) fitting(some []int) (jobs []int) {
	var most sched.Resources
	for k := range b.nodes {
		most = most.Max(b.nodes[k].Free)
	}
	for _, i := range some {
		job := b.job(i)
		if job.Request.Within(most) && slices.ContainsFunc(b.snapshot.Nodes, job.Fits) {
			jobs = append(jobs, i)
		}
	}
	return jobs
}

func (b *batch) placed(i int) bool { return b.plan[i].Node != "" }

// place assigns a job to a node.
func (b *batch) place(i, node int) {
	n, job, d := &b.nodes[node], b.job(i), &b.plan[i]
	d.Node = n.Name
	d.Window.End = b.snapshot.Now.Add(n.Runtime(job))
	d.Cost = b.snapshot.Estimate(job, n, d.Window)
	n.Provisional += n.Added(job)
	*n = n.Place(job.Request)
}

// close removes the placed jobs from the open jobs.
func (b *batch) close() { b.open = slices.DeleteFunc(b.open, b.placed) }
