package sched

import "slices"

// matcher places the jobs of a batch that may run now, all at once.
type matcher func(b *batch)

// matchers are the wheres that look at a whole queue. Their costs in the table of wheres are for one job alone.
var matchers = map[string]matcher{
	"ecsched-dp": matchInRounds,
	"ecsched-ml": matchInRounds,
	"max-min":    maxMin,
	"min-min":    minMin,
}

// batch is a queue that is being planned: what it places takes room on its nodes, which are copies.
type batch struct {
	snapshot Snapshot // of the nodes as they are by now
	nodes    []Node   // by name
	cost     nodeCost
	plan     Plan
	open     []int // positions in the queue that may run now and have no node yet, in order of submission
}

// Batches reports whether g is to be given the whole queue with all nodes at once: its decision on one job depends on the
// others.
func (g *Greedy) Batches() bool { return g.match != nil || g.order != nil }

// planBatch asks every job when it may start, and matches those that may start now.
func (g *Greedy) planBatch(s *Snapshot) Plan {
	b := newBatch(s, g.cost)
	for _, i := range s.inOrder(nil) {
		job := &s.Queue[i]
		window, reason, again := g.when.ask(s, job)
		if g.chooses(job) { // which it does when the job runs, on its least number
			window, reason, again, _ = g.scaled(s, job)
		}
		b.plan[i] = Decision{Job: job.ID, Window: window, Again: again, Reason: reason}
		if !b.plan[i].Held(s.Now) && !job.Running {
			b.open = append(b.open, i)
		}
	}
	g.match(b)
	for _, i := range b.open {
		if d := &b.plan[i]; d.Reason.Kind == Cheapest {
			d.Reason.Kind = NoRoom
		}
	}
	return b.plan
}

func newBatch(s *Snapshot, cost nodeCost) *batch {
	b := &batch{snapshot: *s, nodes: make([]Node, len(s.Nodes)), cost: cost, plan: make(Plan, len(s.Queue))}
	b.snapshot.Nodes = make([]*Node, len(s.Nodes))
	for k, n := range byName(s.Nodes) {
		b.nodes[k] = *n
		b.snapshot.Nodes[k] = &b.nodes[k]
	}
	return b
}

func (b *batch) job(i int) *Job { return &b.snapshot.Queue[i] }

// fitting returns those of some jobs that fit on some node.
func (b *batch) fitting(some []int) (jobs []int) {
	var most Resources
	for k := range b.nodes {
		free := b.nodes[k].Free
		most = Resources{max(most.MilliCPU, free.MilliCPU), max(most.Memory, free.Memory), max(most.GPU, free.GPU)}
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
	b.open = slices.DeleteFunc(b.open, func(other int) bool { return other == i })
}
