package strategy

import (
	"slices"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/codec"
	"github.com/kubenergy/kubenergy/internal/sched/placement"
)

// matcher is a where that looks at a whole queue.
type matcher struct {
	match       func(b *batch) // places the jobs of a batch that may run now, all at once
	alone       string         // the where whose cost is the matcher's for one job alone
	description string
}

const (
	saysInRounds = "the whole queue in rounds of min-cost flow, "
	saysByPrices = "the whole queue at once by prices of what is scarce, "
)

var matchers = map[string]matcher{
	"ecsched-carbon": {matchInRounds, "carbon", saysInRounds + "by the cost of carbon"},
	"ecsched-dp":     {matchInRounds, "ecsched-dp", saysInRounds + "by dot product of request and room (ECSched)"},
	"ecsched-energy": {matchInRounds, "energy", saysInRounds + "by the cost of energy"},
	"ecsched-ml":     {matchInRounds, "ecsched-ml", saysInRounds + "fullest nodes first (ECSched)"},
	"flow-carbon":    {matchByPrices, "carbon", saysByPrices + "at the cost of carbon"},
	"flow-dp":        {matchByPrices, "ecsched-dp", saysByPrices + "by dot product of request and room"},
	"flow-energy":    {matchByPrices, "energy", saysByPrices + "at the cost of energy"},
	"flow-ml":        {matchByPrices, "ecsched-ml", saysByPrices + "fullest nodes first"},
	"max-min":        {maxMin, "max-min", "the whole queue, the job that ends last first, each where it ends soonest"},
	"min-min":        {minMin, "min-min", "the whole queue, the job that ends first first, each where it ends soonest"},
}

// batch is a queue that is being planned: what it places takes room on its nodes, which are copies.
type batch struct {
	snapshot sched.Snapshot // of the nodes as they are by now
	nodes    []sched.Node   // by name
	cost     placement.NodeCost
	plan     sched.Plan
	open     []int       // positions in the queue that may run now and have no node yet, in order of submission
	stop     func() bool // says that there is no time left
	proof    Optimality

	kinds        []sched.Job // jobs that are alike count as one, see [batch.group]
	kindOf       []int       // by position in the queue, of those that were open
	maxNodePairs int         // [maxNodePairs], fewer in tests
}

// Optimality is what is known of a plan of a whole queue.
type Optimality struct {
	Whole  bool    // there was time for all that the strategy does
	Gap    float64 // (cost − bound)/|bound|, with costs as they were before the first job was placed
	HasGap bool    // the strategy knows a bound, and it is not 0
}

// Batches reports whether g is to be given the whole queue with all nodes at once: its decision on one job depends on
// the others.
func (g *Greedy) Batches() bool { return g.match != nil || g.order != nil || g.startRule.Together }

// CountsAll reports whether g is to be given nodes without room as well: it plans what runs there later.
func (g *Greedy) CountsAll() bool { return g.startRule.Together }

// Replans reports whether g decides anew, with the queue, on what runs and may be suspended.
func (g *Greedy) Replans() bool { return g.startRule.Together }

// Alone returns the strategy that decides on a job by itself as g does, at the same cost, and matches no queue.
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

// PlanWithin is [Greedy.Plan] for who has all nodes and little time. Whether a job fits is asked of [sched.Job.Fits]
// even if it is the only one. Stop is asked from time to time whether time is up; then what is left of the queue is
// placed job by job at the same cost, on what is left of the nodes, by strategies that match a whole queue, unless its
// jobs have too little in common for that to be fast; others leave it without an opinion.
func (g *Greedy) PlanWithin(s *sched.Snapshot, stop func() bool) (sched.Plan, Optimality) {
	if g.match == nil && !g.together(s) {
		return g.planInOrder(s, stop)
	}
	b := newBatch(s, g.cost, stop)
	g.planBatch(s, b)
	return b.plan, b.proof
}

// planBatch asks every job when it may start, and matches those that may start now.
func (g *Greedy) planBatch(s *sched.Snapshot, b *batch) {
	when := g.startRule
	if g.together(s) {
		when = sched.StartRule{Start: sched.StartNow, Holds: true} // unless a budget is used up
	}
	for _, i := range s.InOrder(nil) {
		job := &s.Queue[i]
		window, reason, again := when.Ask(s, job)
		if g.chooses(job) { // which it does when the job runs, on its least number
			window, reason, again, _ = g.scaled(s, job)
		}
		b.plan[i] = sched.Decision{Job: job.ID, Window: window, Again: again, Reason: reason}
		if !b.plan[i].Held(s.Now) && (!job.Running || g.together(s) && job.Interruptible) {
			b.open = append(b.open, i)
		}
	}
	if g.together(s) {
		b.planTogether()
	}
	if g.match != nil {
		g.match(b)
	} else {
		g.placeOpen(b)
	}
	for _, i := range b.open {
		if d := &b.plan[i]; d.Node == "" && (d.Reason.Kind == sched.Cheapest || d.Reason.Kind == sched.Planned) {
			d.Reason.Kind = sched.NoRoom
		}
	}
}

// placeOpen places what is open job by job.
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
	b.snapshot.Nodes = make([]*sched.Node, len(b.nodes))
	for k := range b.nodes {
		b.snapshot.Nodes[k] = &b.nodes[k]
	}
	return b
}

func (b *batch) job(i int) *sched.Job { return &b.snapshot.Queue[i] }

// stopped reports whether time is up.
func (b *batch) stopped() bool {
	if b.proof.Whole && b.stop() {
		b.proof.Whole = false
	}
	return !b.proof.Whole
}

// fitting returns those of some jobs that fit on some node.
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

// place puts a job on a node.
func (b *batch) place(i, node int) {
	n, job, d := &b.nodes[node], b.job(i), &b.plan[i]
	d.Node = n.Name
	d.Window.End = b.snapshot.Now.Add(n.Runtime(job))
	d.Cost = b.snapshot.Estimate(job, n, d.Window)
	n.Provisional += n.Added(job)
	*n = n.Place(job.Request)
}

// close takes the jobs that have a node by now off those that are open.
func (b *batch) close() { b.open = slices.DeleteFunc(b.open, b.placed) }
