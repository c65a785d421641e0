package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// batch plans the queue as a whole, according to the rules of the scenario.
type batch struct {
	rules   QueueRules
	jobs    []int32     // in order of arrival
	queue   []sched.Job // the same jobs, as given to strategies
	kept    []bool      // whether the last plan held the job in line
	inLine  int         // number of jobs held in line
	tried   int         // number of jobs at the head of the queue that the last plan considered and did not place
	nodes   []*sched.Node
	ticking bool // a tick is pending, and no plan is made before it
	// wake is the time of the next tick requested by jobs held in line. Plans may be made earlier. 0 if no tick is
	// requested.
	wake int64
	// all is set if the strategy considers all nodes. It is then given nodes that are full as well, and the planned
	// ends of running jobs.
	all  bool
	ends ends
	// replans is set if the strategy makes new decisions for running jobs that may be suspended. running contains
	// these jobs. without contains the nodes with the usage of these jobs removed.
	replans bool
	// shortages is set if the strategy requires the shortages of jobs.
	shortages *sched.Shortages
	running   []int32
	without   []sched.Node
}

// newBatch returns nil if jobs are decided one by one.
func newBatch(s *Scenario, strategy strategy.Strategy) *batch {
	planner, ok := strategy.(interface{ Batches() bool })
	if strategy == nil || s.Queue.Backfill > 0 || s.Queue == (QueueRules{}) && (!ok || !planner.Batches()) {
		return nil
	}
	counter, ok := strategy.(interface{ CountsAll() bool })
	replanner, knows := strategy.(interface{ Replans() bool })
	b := &batch{
		rules: s.Queue, all: ok && counter.CountsAll(), replans: knows && replanner.Replans(),
		ends: ends{},
	}
	if guard, ok := strategy.(interface{ Guards() bool }); ok && guard.Guards() {
		b.shortages = &sched.Shortages{}
	}
	return b
}

// planAll adds the new jobs to the queue and plans the queue now or at the next step. No plan is made if nothing
// has changed since a plan that placed no job.
func (e *engine) planAll(ctx context.Context, now time.Time, at int64, ticked bool) error {
	b := e.batch
	for _, ev := range e.fresh {
		e.enqueue(now, int(ev.job), ev.kind)
	}
	if !ticked {
		if b.ticking || len(b.jobs)+len(b.running) == 0 || len(e.fresh) == 0 && len(e.freed) == 0 {
			return nil
		}
		if step := int64(b.rules.Step); step > 0 && at%step != 0 {
			e.tickAt((at/step + 1) * step)
			return nil
		}
	}
	b.ticking = false
	done, err := e.planQueue(ctx, now)
	if err == nil && done && len(b.jobs) > 0 && b.rules.Step > 0 {
		e.tickAt(at + int64(b.rules.Step)) // remaining jobs may be placed now that others have started
	}
	return err
}

// look records the current shortages, before and after the decisions at a time.
func (b *batch) look(now time.Time, nodes []sched.Node) {
	if b != nil && b.shortages != nil {
		b.shortages.Look(now, nodes)
	}
}

func (e *engine) tickAt(at int64) {
	e.batch.ticking = true
	e.events.push(event{at: at, kind: tick})
}

// enqueue adds an arriving or released job, or one with a due decision, to the end of the queue.
func (e *engine) enqueue(now time.Time, job int, kind eventKind) {
	if kind != arrival {
		e.held--
	} else if b := e.batch; b.rules.Window > 0 && !e.fitsSomewhere(job) {
		e.result.Outcomes[job].Placed.Reason = sched.NoRoom // otherwise it would occupy the window permanently
		return
	}
	e.lineUpLast(now, job, e.final(now, job, kind == release))
	e.letGo(now, job)
}

// lineUpLast adds a job to the end of the queue.
func (e *engine) lineUpLast(now time.Time, job int, final bool) {
	b := e.batch
	b.jobs = append(b.jobs, int32(job))
	b.queue = append(b.queue, sched.Job{})
	b.kept = append(b.kept, false)
	e.describeJob(&b.queue[len(b.queue)-1], now, job, final)
}

// fitsSomewhere reports whether a job fits on any empty node.
func (e *engine) fitsSomewhere(job int) bool {
	j := &e.scenario.Jobs[job]
	return slices.ContainsFunc(e.scenario.Nodes, func(n sched.Node) bool { return j.Fits(&n) })
}

// planQueue plans the head of the queue on all nodes and reports whether anything changed.
func (e *engine) planQueue(ctx context.Context, now time.Time) (changed bool, err error) {
	b := e.batch
	size := len(b.jobs)
	if b.rules.Window > 0 {
		size = min(size, b.rules.Window)
	}
	if size+len(b.running) == 0 {
		return false, nil
	}
	e.offerAll(now, size)
	for k := range size {
		e.expect(&b.queue[k])
	}
	queue := e.withRunning(now, b.queue[:size:size])
	if b.shortages != nil {
		b.shortages.Set(now, queue)
	}
	e.knowledge.look(now)
	snapshot := e.snapshot
	snapshot.Now, snapshot.Queue, snapshot.Nodes = now, queue, b.nodes
	e.result.Decisions++
	plan, err := e.ask(ctx, &snapshot)
	if err != nil {
		return false, err
	}
	if len(plan) != len(queue) {
		return false, fmt.Errorf("strategy planned %d of %d jobs", len(plan), len(queue))
	}
	if err := e.goOnAll(now, queue[size:], plan[size:]); err != nil {
		return false, err
	}
	return e.carryOutAll(now, plan[:size])
}

// ask requests a plan from the strategy. Planning a whole queue may take minutes and stops when ctx is cancelled.
func (e *engine) ask(ctx context.Context, s *sched.Snapshot) (sched.Plan, error) {
	within, ok := e.strategy.(interface {
		PlanWithin(s *sched.Snapshot, stop func() bool) (sched.Plan, strategy.Optimality)
	})
	if !ok || len(s.Queue) == 1 && !e.batch.all { // Plan assumes that a single job fits on all offered nodes
		return e.strategy.Plan(s), nil
	}
	plan, _ := within.PlanWithin(s, func() bool { return ctx.Err() != nil })
	return plan, ctx.Err()
}

// carryOutAll applies a plan for the head of the queue within the rules, and reports whether anything
// changed.
func (e *engine) carryOutAll(now time.Time, plan sched.Plan) (changed bool, err error) {
	b, size := e.batch, len(plan)
	left, placed := 0, 0
	for k := range b.jobs {
		stays := true
		if k < size && (b.rules.PerStep == 0 || placed < b.rules.PerStep) {
			if stays, err = e.carryOut(now, k, &plan[k]); err != nil {
				return false, err
			}
			if !stays && plan[k].Node != "" {
				placed++
			}
		}
		if stays {
			if left != k {
				b.jobs[left], b.queue[left], b.kept[left] = b.jobs[k], b.queue[k], b.kept[k]
			}
			left++
		}
	}
	changed = left < len(b.jobs)
	clear(b.queue[left:])
	b.jobs, b.queue, b.kept = b.jobs[:left], b.queue[:left], b.kept[:left]
	b.tried = min(left, size)
	return changed, nil
}

// offerAll collects the nodes for a plan of size jobs.
func (e *engine) offerAll(now time.Time, size int) {
	b := e.batch
	b.nodes = b.nodes[:0]
	for i := range e.nodes {
		// Strategies assume that a single job fits on all offered nodes. For several jobs they check the capacity
		// themselves.
		if n := &e.nodes[i]; b.all || size > 1 || e.scenario.Jobs[b.jobs[0]].Fits(n) {
			e.meters.read(i, n, now)
			b.nodes = append(b.nodes, n)
		}
	}
}

// carryOut applies the decision for one job of the queue and reports whether the job remains in the queue.
func (e *engine) carryOut(now time.Time, k int, d *sched.Decision) (stays bool, err error) {
	b := e.batch
	job, released := int(b.jobs[k]), b.queue[k].Released
	if d.Held(now) && d.InLine() {
		return true, e.keepInLine(now, k, d)
	}
	if b.kept[k] {
		b.kept[k] = false
		b.inLine--
		e.held--
		e.letGo(now, job)
	}
	switch {
	case d.Held(now):
		return false, e.hold(now, job, d, released)
	case d.Node == "":
		e.lacksRoom(job)
		return true, nil
	}
	return false, e.place(now, job, d)
}

// keepInLine holds a job in its place in the queue. The job is planned again when another job ends, and at the time
// given in the decision.
func (e *engine) keepInLine(now time.Time, k int, d *sched.Decision) error {
	b := e.batch
	job := int(b.jobs[k])
	j := &e.scenario.Jobs[job]
	if err := e.putOff(now, job, d, b.queue[k].Released); err != nil {
		return err
	}
	if err := checkAgain(now, j, d); err != nil {
		return err
	}
	if !b.kept[k] {
		b.kept[k] = true
		b.inLine++
		e.held++
		e.tasks.idle(job, now)
	}
	if e.machines != nil && d.Node != "" && b.queue[k].Place != d.Place() { // the planned node must be awake by then
		e.events.push(event{at: e.since(timeutil.Later(now, d.Window.Start.Add(-e.machines.horizon))), kind: power})
	}
	b.queue[k].Place = d.Place()
	e.planAgain(now, d.Again)
	return nil
}

// planAgain schedules a plan of the queue at the given time, in case no other event triggers one before.
func (e *engine) planAgain(now, then time.Time) {
	b, at := e.batch, e.since(then)
	if step := int64(b.rules.Step); step > 0 {
		at = (at + step - 1) / step * step
	}
	if b.wake <= e.since(now) || at < b.wake {
		b.wake = at
		e.events.push(event{at: at, kind: tick})
	}
}

// begins records when a job will leave its node according to the strategy, or adds the job to the running jobs that
// the strategy replans.
func (b *batch) begins(n *sched.Node, job int, j *sched.Job, end time.Time) {
	switch {
	case b == nil || !b.all:
	case b.replans && j.Interruptible:
		b.running = append(b.running, int32(job))
	default:
		b.ends.add(n, job, j, end)
	}
}

// left removes a job that has left its node.
func (b *batch) left(n *sched.Node, job int) {
	if b == nil || !b.all {
		return
	}
	b.ends.drop(n, job)
	if k := slices.Index(b.running, int32(job)); k >= 0 {
		b.running = slices.Delete(b.running, k, k+1)
	}
}

// withRunning appends the running jobs that may be suspended to the queue and removes their usage from the nodes of
// the batch.
func (e *engine) withRunning(now time.Time, queue []sched.Job) []sched.Job {
	b := e.batch
	if len(b.running) == 0 {
		return queue
	}
	b.without = append(b.without[:0], e.nodes...) // all nodes are offered
	for k := range b.nodes {
		b.nodes[k] = &b.without[k]
	}
	for _, job := range b.running {
		n := &b.without[e.on[job]]
		n.Free, n.Jobs = n.Free.Add(e.sized(int(job)).Request), n.Jobs-1
		queue = append(queue, sched.Job{})
		j := &queue[len(queue)-1]
		e.describeJob(j, now, int(job), e.slack(now, int(job)) <= 0)
		j.Place.Node = n.Name
	}
	return queue
}

// goOnAll applies the decisions for running jobs: it suspends jobs first and then changes the number of replicas of
// others, starting with decreases.
func (e *engine) goOnAll(now time.Time, queue []sched.Job, plan sched.Plan) error {
	running := slices.Clone(e.batch.running)
	for k, job := range running {
		if d := &plan[k]; d.Held(now) {
			if err := e.suspend(now, int(job)); err != nil {
				return err
			}
			e.lineUpLast(now, int(job), queue[k].Released)
			if err := e.keepInLine(now, len(e.batch.jobs)-1, d); err != nil {
				return err
			}
		}
	}
	for _, more := range [2]bool{false, true} {
		for k, job := range running {
			d := &plan[k]
			if d.Held(now) || d.Replicas == 0 || d.Replicas > e.tasks.of[job].replicas != more {
				continue
			}
			if err := e.resize(now, int(job), d.Replicas); err != nil {
				return err
			}
		}
	}
	for k, job := range running {
		if d := &plan[k]; !d.Held(now) {
			if err := e.askNext(now, int(job), d); err != nil {
				return err
			}
		}
	}
	return nil
}
