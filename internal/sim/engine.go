package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// Run simulates the scenario under a strategy until the last job has finished.
//
// The queue is served like in kube-scheduler: in order of arrival, a job that does not fit on any node does not
// block those behind it, and it is retried when a completion frees capacity. Strategies that plan the queue as a
// whole and scenarios with queue rules use those rules instead.
func Run(ctx context.Context, s *Scenario, name string, strategy strategy.Strategy) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	if planner, ok := strategy.(interface{ Batches() bool }); ok && planner.Batches() && s.Queue.Backfill > 0 {
		return nil, fmt.Errorf("%s plans the queue as a whole and cannot be combined with queue.backfill", name)
	}
	began := time.Now()
	e := newEngine(s, strategy)
	if err := e.run(ctx); err != nil {
		if s.Queue.Step > 0 {
			name += fmt.Sprintf(", planned every %v (queue.step)", s.Queue.Step) // may explain a timeout
		}
		return nil, fmt.Errorf("simulating %s: %w", name, err)
	}
	e.result.Strategy = name
	e.result.Elapsed = time.Since(began)
	return e.result, nil
}

// engine is the state of one run.
type engine struct {
	scenario *Scenario
	strategy strategy.Strategy
	account  *accountant
	use      *use    // nil if jobs use all of their requests
	meters   *meters // nil if the strategy does not use live power
	pods     *pods   // nil if no learner is informed of the power of jobs
	result   *Result

	arrivals []int32 // sorted by submission time, stable
	arrived  int     // number of jobs that have arrived
	events   eventHeap
	fresh    []event // arrivals, releases and due decisions at the current time
	checks   []event // running jobs with a due decision

	nodes      []sched.Node // as seen by strategies
	byName     map[string]int
	candidates *candidates
	freed      []int   // nodes with more free capacity than at the previous event time
	on         []int32 // per job: the node on which it runs or ran last
	waiting    waitingQueue
	batch      *batch    // nil if jobs are decided one by one
	backfill   *backfill // nil if backfill is disabled
	tasks      *tasks    // nil if the strategy does not suspend jobs
	elastic    elastic
	knowledge  knowledge
	machines   *machines // nil if no machine takes time to boot
	ahead      *ahead    // nil if no room is left for other jobs, or jobs are not decided one by one

	running int
	held    int
	counts  []counts // at the start of every timeline interval

	snapshot sched.Snapshot // reused; strategies must not retain it
	feasible []*sched.Node
}

func newEngine(s *Scenario, strategy strategy.Strategy) *engine {
	u := newUse(s)
	e := &engine{
		scenario: s,
		strategy: strategy,
		account:  newAccountant(s.Start, s.Nodes, u, s.timelineStep()),
		use:      u,
		meters:   newMeters(s, strategy, u),
		pods:     newPods(s, strategy, u),
		result:   &Result{Scenario: s, Outcomes: make([]Outcome, len(s.Jobs))},
		arrivals: sliceutil.Order(len(s.Jobs), func(a, b int32) int {
			return s.Jobs[a].Submitted.Compare(s.Jobs[b].Submitted)
		}),
		nodes:    append([]sched.Node(nil), s.Nodes...),
		byName:   make(map[string]int, len(s.Nodes)),
		on:       make([]int32, len(s.Jobs)),
		waiting:  newWaitingQueue(),
		batch:    newBatch(s, strategy),
		backfill: newBackfill(s),
		tasks:    newTasks(s, strategy),
		feasible: make([]*sched.Node, 0, len(s.Nodes)),
		snapshot: sched.Snapshot{Queue: make([]sched.Job, 1), Policy: s.Policy},
	}
	e.result.engine = e
	if e.batch == nil && e.backfill == nil {
		e.ahead = newAhead(strategy)
	}
	e.knowledge = newKnowledge(s, strategy, e.nodes)
	e.snapshot.Sites = e.knowledge.sites
	known := e.knowledge.learner == nil
	e.elastic = newElastic(s, strategy, known && e.batch == nil && e.backfill == nil,
		known && e.batch != nil && e.batch.replans)
	e.machines = newMachines(s, e.nodes)
	e.candidates = newCandidates(e.nodes, strategy, &s.Policy, e.batch != nil)
	for i := range e.nodes {
		e.byName[e.nodes[i].Name] = i
	}
	for i := range e.result.Outcomes {
		e.result.Outcomes[i].Job = i
	}
	return e
}

func (e *engine) run(ctx context.Context) error {
	if e.machines != nil {
		e.events.push(event{kind: power})
	}
	for {
		at, ok := e.nextInstant()
		if !ok || e.over() {
			return e.finish()
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := e.instant(ctx, at); err != nil {
			return err
		}
	}
}

// nextInstant returns the time of the next event.
func (e *engine) nextInstant() (at int64, ok bool) {
	if e.arrived < len(e.arrivals) {
		at, ok = e.since(e.scenario.Jobs[e.arrivals[e.arrived]].Submitted), true
	}
	if len(e.events) > 0 && (!ok || e.events[0].at < at) {
		at, ok = e.events[0].at, true
	}
	return at, ok
}

// instant processes all events of one point in time in the order documented at [event].
func (e *engine) instant(ctx context.Context, at int64) error {
	now := e.scenario.Start.Add(time.Duration(at))
	e.chartCounts(now)
	e.fresh, e.checks, e.freed = e.fresh[:0], e.checks[:0], e.freed[:0]
	ticked, err := e.collect(now, at)
	if err != nil {
		return err
	}
	e.knowledge.refresh(e, now)
	e.pods.refresh(now)
	for _, ev := range e.checks {
		if err := e.check(now, ev); err != nil {
			return err
		}
	}
	e.batch.look(now, e.nodes)
	e.seeCapacity()
	if err := e.decideAll(ctx, now, at, ticked); err != nil {
		return err
	}
	e.batch.look(now, e.nodes)
	return e.decideSleep(now, at)
}

// seeCapacity records whether nodes have capacity for the arriving jobs that may be held.
func (e *engine) seeCapacity() {
	if holder, ok := e.strategy.(interface{ Holds() bool }); !ok || !holder.Holds() {
		return
	}
	for _, ev := range e.fresh {
		if j := &e.scenario.Jobs[ev.job]; ev.kind == arrival && j.AllowedDelay > 0 {
			e.result.Outcomes[ev.job].HadCapacity = slices.ContainsFunc(e.nodes, func(n sched.Node) bool {
				n.Free = n.Room()
				return j.Fits(&n)
			})
		}
	}
}

// decideAll makes the decisions for the current jobs.
func (e *engine) decideAll(ctx context.Context, now time.Time, at int64, ticked bool) error {
	switch {
	case e.backfill != nil:
		return e.serve(ctx, now, at, ticked)
	case e.batch != nil:
		return e.planAll(ctx, now, at, ticked)
	}
	if err := e.retry(now); err != nil {
		return err
	}
	for _, ev := range e.fresh {
		if err := ctx.Err(); err != nil { // decisions may be slow, and there may be many at the same time
			return err
		}
		if err := e.admit(now, int(ev.job), ev.kind); err != nil {
			return err
		}
	}
	return nil
}

// collect processes the completions at the current time and collects the other events. It reports whether the queue
// is to be planned as a whole.
func (e *engine) collect(now time.Time, at int64) (ticked bool, err error) {
	for len(e.events) > 0 && e.events[0].at == at {
		ev := e.events.pop()
		switch ev.kind {
		case completion:
			if err := e.complete(now, at, int(ev.job)); err != nil {
				return false, err
			}
		case booted:
			if err := e.boot(now, int(ev.job)); err != nil {
				return false, err
			}
		case power:
		case check:
			e.checks = append(e.checks, ev)
		case tick:
			ticked = true
		default:
			e.fresh = append(e.fresh, ev)
		}
	}
	for e.arrived < len(e.arrivals) {
		job := e.arrivals[e.arrived]
		if e.since(e.scenario.Jobs[job].Submitted) != at {
			break
		}
		e.arrived++
		e.knowledge.changed = true
		e.ahead.add(e.scenario, job)
		e.fresh = append(e.fresh, event{at: at, kind: arrival, job: job})
	}
	return ticked, nil
}

func (e *engine) since(t time.Time) int64 { return int64(t.Sub(e.scenario.Start)) }

// admit makes a decision for a job that arrives, is released, or has a due decision.
func (e *engine) admit(now time.Time, job int, kind eventKind) error {
	if kind != arrival {
		e.held--
	}
	final := e.final(now, job, kind == release)
	e.feasible = e.feasible[:0]
	e.snapshot.Ahead = e.ahead.look(now, &e.scenario.Jobs[job], e.nodes)
	e.offer(now, &e.scenario.Jobs[job])
	d := e.plan(now, job, final)
	if d.Held(now) {
		return e.hold(now, job, d, final)
	}
	e.letGo(now, job)
	if d.Node == "" {
		e.lacksRoom(job)
		e.ahead.waits(now, &e.scenario.Jobs[job])
		e.waiting.add(job, &e.scenario.Jobs[job])
		return nil
	}
	return e.place(now, job, d)
}

// lacksRoom sets the reason of a job that has not started yet to NoRoom.
func (e *engine) lacksRoom(job int) {
	if out := &e.result.Outcomes[job]; out.Placed.Node == "" {
		out.Placed.Reason = sched.NoRoom
	}
}

// final reports whether a job must not be held any longer, because it was released finally or has no remaining
// slack for another hold.
func (e *engine) final(now time.Time, job int, released bool) bool {
	if released {
		return true
	}
	o := &e.result.Outcomes[job]
	return (o.Held() || o.Suspensions > 0) && e.slack(now, job) <= 0
}

// hold delays a job that has not started or is suspended.
func (e *engine) hold(now time.Time, job int, d *sched.Decision, final bool) error {
	j := &e.scenario.Jobs[job]
	if err := e.putOff(now, job, d, final); err != nil {
		return err
	}
	e.ahead.leaves(j)
	e.held++
	e.tasks.idle(job, now)
	kind, until := release, d.Window.Start
	if !d.Again.IsZero() {
		if err := checkAgain(now, j, d); err != nil {
			return err
		}
		kind, until = again, timeutil.Earlier(until, d.Again)
	}
	if kind == again || e.result.Outcomes[job].Suspensions > 0 {
		until = timeutil.Earlier(until, now.Add(e.slack(now, job)))
	}
	ev := event{at: e.since(until), kind: kind, job: int32(job)}
	if e.backfill.holds(j, ev, until) {
		e.events.push(ev)
		e.willStart(now, job, ev.at)
	}
	return nil
}

// putOff records that a decision holds a job. It returns an error if the job is final.
func (e *engine) putOff(now time.Time, job int, d *sched.Decision, final bool) error {
	if final {
		return fmt.Errorf("strategy holds job %s at %s, but it is already released or has no slack left",
			e.scenario.Jobs[job].ID, now.Format(time.RFC3339))
	}
	if out := &e.result.Outcomes[job]; out.Placed.Node == "" {
		out.Hold = new(*d)
	}
	return nil
}

// checkAgain returns an error if the next decision is not in the future, which would cause an infinite loop.
func checkAgain(now time.Time, j *sched.Job, d *sched.Decision) error {
	if d.Again.After(now) {
		return nil
	}
	return fmt.Errorf("strategy requests the next decision on job %s at %s, which is not after %s", j.ID,
		d.Again.Format(time.RFC3339), now.Format(time.RFC3339))
}

// letGo records that from now on a job only waits for capacity.
func (e *engine) letGo(now time.Time, job int) {
	out := &e.result.Outcomes[job]
	if out.Placed.Node == "" {
		out.Released = now
		if e.tasks == nil {
			out.Delayed = now.Sub(e.scenario.Jobs[job].Submitted)
		}
	}
	e.tasks.letGo(job, now, out)
}

// consider adds a node to the candidates of a decision.
func (e *engine) consider(now time.Time, i int) {
	e.meters.read(i, &e.nodes[i], now)
	e.feasible = append(e.feasible, &e.nodes[i])
}

// plan requests a decision from the strategy for one job, with the nodes in e.feasible.
func (e *engine) plan(now time.Time, job int, released bool) *sched.Decision {
	e.knowledge.look(now)
	e.snapshot.Now = now
	e.snapshot.Nodes = e.feasible
	e.describeJob(&e.snapshot.Queue[0], now, job, released)
	e.result.Decisions++
	return &e.strategy.Plan(&e.snapshot)[0]
}

// describeJob sets q to the job as seen by strategies.
func (e *engine) describeJob(q *sched.Job, now time.Time, job int, released bool) {
	*q = e.scenario.Jobs[job]
	q.Released = q.Released || released
	q.Openings = e.openings(job, q, now)
	if e.tasks != nil {
		q.Done, q.Worked = e.done(now, job)
		q.Running, q.RoomAssured = e.tasks.of[job].running, e.elastic.assured
	}
	if !e.elastic.scales {
		q.Scaling = nil
	}
	e.expect(q)
}

// expect sets the fields of a job that strategies cannot know exactly and that may change while the job waits.
func (e *engine) expect(q *sched.Job) {
	e.knowledge.expect(q)
	e.pods.expect(q)
}

// place applies a decision to run a job now.
func (e *engine) place(now time.Time, job int, d *sched.Decision) error {
	i, ok := e.byName[d.Node]
	j := &e.scenario.Jobs[job]
	if err := e.setReplicas(job, d.Replicas); err != nil {
		return err
	}
	if !ok || !e.sized(job).Fits(&e.nodes[i]) {
		return fmt.Errorf("strategy placed job %s on node %q, but it does not fit", j.ID, d.Node)
	}
	out := &e.result.Outcomes[job]
	if out.Placed.Node == "" {
		out.Placed, out.Start = Placed{Node: e.nodes[i].Name, Cost: d.Cost, Reason: d.Reason.Kind}, now
		e.knowledge.begins(job)
	}
	out.Finish = now.Add(e.tasks.runtime(&e.nodes[i], j, job))
	e.snapshot.Last = e.nodes[i].Name
	if err := e.begin(now, job, i); err != nil {
		return err
	}
	e.batch.begins(&e.nodes[i], job, e.sized(job), d.Window.End)
	e.ahead.begins(&e.nodes[i], job, e.sized(job), d.Window.End)
	e.ahead.leaves(j)
	e.events.push(event{at: e.since(out.Finish), kind: completion, job: int32(job)})
	return e.runs(now, job, d)
}

// begin places a job on node i.
func (e *engine) begin(now time.Time, job, i int) error {
	n, j := &e.nodes[i], e.sized(job)
	if err := e.account.bookUntil(i, n, now); err != nil {
		return err
	}
	if n.Asleep() {
		e.result.Sleep.Boots++
		e.result.Sleep.BootEnergy += e.account.wake(i, n, now)
	}
	e.machines.began(j.Request, e.since(now))
	e.begins(job, j, now)
	e.meters.place(i, n, job, e.pods.reported(j), now)
	e.candidates.change(i, func(n *sched.Node) { *n = n.Place(j.Request) })
	e.use.begin(i, job)
	e.meters.changed(i, n)
	e.pods.begin(i, n, job, now)
	e.on[job] = int32(i)
	e.running++
	return nil
}

// end removes a job from its node.
func (e *engine) end(now time.Time, job int) error {
	i := int(e.on[job])
	n, j := &e.nodes[i], e.sized(job)
	if err := e.account.bookUntil(i, n, now); err != nil {
		return err
	}
	e.meters.end(i, job, now)
	e.candidates.change(i, func(n *sched.Node) {
		n.Free = n.Free.Add(j.Request)
		n.Jobs--
	})
	e.batch.left(n, job)
	e.ahead.left(n, job)
	if n.Jobs == 0 {
		e.machines.emptied(i, now)
	}
	e.ends(job, now)
	e.use.end(i, job)
	e.meters.changed(i, n)
	e.pods.end(i, n, job, now)
	e.running--
	e.freed = append(e.freed, i)
	return nil
}

// ran adds the core-seconds of a job in a time window.
func (e *engine) ran(job int, w sched.Window) {
	e.result.BusyCPU += float64(e.sized(job).Request.MilliCPU) / 1000 * w.End.Sub(w.Start).Seconds()
}

func (e *engine) complete(now time.Time, at int64, job int) error {
	if e.tasks != nil && !e.tasks.ends(job, at) {
		return nil // it has been suspended in the meantime
	}
	if err := e.end(now, job); err != nil {
		return err
	}
	out := &e.result.Outcomes[job]
	if e.tasks == nil {
		e.ran(job, sched.Window{Start: out.Start, End: out.Finish})
	} else {
		e.lastRun(now, job)
	}
	e.knowledge.ended(job, e.scenario.Jobs[job].Duration)
	e.result.End = now
	return nil
}
