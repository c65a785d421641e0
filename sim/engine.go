package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
	"github.com/kubenergy/kubenergy/sched"
)

// Run plays the scenario under a strategy until the last job has finished.
//
// The queue is served as kube-scheduler serves it: in order of arrival, a job that fits nowhere does not block those
// behind it, and it is tried again when a completion makes room.
func Run(ctx context.Context, s *Scenario, name string, strategy sched.Strategy) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	began := time.Now()
	e := newEngine(s, strategy)
	if err := e.run(ctx); err != nil {
		return nil, fmt.Errorf("simulating %s: %w", name, err)
	}
	e.result.Strategy = name
	e.result.Elapsed = time.Since(began)
	return e.result, nil
}

// engine is the state of one run.
type engine struct {
	scenario *Scenario
	strategy sched.Strategy
	account  *accountant
	meters   *meters // nil: the strategy does not look at them
	result   *Result

	events  eventHeap
	nodes   []sched.Node
	byName  map[string]int
	waiting []int32 // released jobs that lack room, in order of release
	running int
	held    int
	counts  []counts // at the start of every timeline interval

	snapshot sched.Snapshot // reused: strategies keep nothing of it
	feasible []*sched.Node
	freed    []int
}

type counts struct{ running, queued, held int }

func newEngine(s *Scenario, strategy sched.Strategy) *engine {
	e := &engine{
		scenario: s,
		strategy: strategy,
		account:  newAccountant(s.Start, len(s.Nodes), s.timelineStep()),
		meters:   newMeters(s, strategy),
		result:   &Result{Scenario: s, Outcomes: make([]Outcome, len(s.Jobs))},
		events:   make(eventHeap, 0, 2*len(s.Jobs)),
		nodes:    append([]sched.Node(nil), s.Nodes...),
		byName:   make(map[string]int, len(s.Nodes)),
		feasible: make([]*sched.Node, 0, len(s.Nodes)),
		snapshot: sched.Snapshot{Queue: make([]sched.Job, 1), Sites: s.Sites, Policy: s.Policy},
	}
	e.result.engine = e
	for i := range e.nodes {
		e.byName[e.nodes[i].Name] = i
	}
	for i := range e.result.Outcomes {
		e.result.Outcomes[i].Job = i
	}
	return e
}

func (e *engine) run(ctx context.Context) error {
	for i := range e.scenario.Jobs {
		e.events.push(event{at: e.since(e.scenario.Jobs[i].Submitted), kind: arrival, job: int32(i)})
	}
	const checkEvery = 1 << 12 // events between two looks at the context
	var fresh []event          // arrivals and releases of one instant
	for len(e.events) > 0 {
		at := e.events[0].at
		now := e.scenario.Start.Add(time.Duration(at))
		e.chartCounts(now)
		fresh, e.freed = fresh[:0], e.freed[:0]
		for len(e.events) > 0 && e.events[0].at == at {
			ev := e.events.pop()
			if e.result.Events++; e.result.Events%checkEvery == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if ev.kind != completion {
				fresh = append(fresh, ev)
				continue
			}
			if err := e.complete(now, int(ev.job)); err != nil {
				return err
			}
		}
		if err := e.retry(now); err != nil {
			return err
		}
		for _, ev := range fresh {
			if err := e.admit(now, int(ev.job), ev.kind == release); err != nil {
				return err
			}
		}
	}
	return e.finish()
}

func (e *engine) since(t time.Time) int64 { return int64(t.Sub(e.scenario.Start)) }

// admit decides on a job that arrives or whose hold ends.
func (e *engine) admit(now time.Time, job int, released bool) error {
	out := &e.result.Outcomes[job]
	if released {
		e.held--
	}
	e.feasible = e.feasible[:0]
	j := &e.scenario.Jobs[job]
	for i := range e.nodes {
		if j.Fits(&e.nodes[i]) {
			e.consider(now, i)
		}
	}
	d := e.plan(now, job, released)
	if d.Held(now) && !released {
		out.Hold = d
		e.held++
		e.events.push(event{at: e.since(d.Window.Start), kind: release, job: int32(job)})
		return nil
	}
	out.Released = now
	if d.Node == "" {
		out.Placed.Reason.Kind = sched.NoRoom // until there is some
		e.waiting = append(e.waiting, int32(job))
		return nil
	}
	return e.place(now, job, d)
}

// retry offers the nodes that completions have just freed to the waiting jobs. What did not fit elsewhere before does
// not fit there now, so only those nodes are looked at.
func (e *engine) retry(now time.Time) error {
	if len(e.freed) == 0 || len(e.waiting) == 0 {
		return nil
	}
	room := e.room()
	left := e.waiting[:0]
	for _, job := range e.waiting {
		j := &e.scenario.Jobs[job]
		if !j.Request.Within(room) {
			left = append(left, job)
			continue
		}
		e.feasible = e.feasible[:0]
		for _, i := range e.freed {
			if j.Fits(&e.nodes[i]) {
				e.consider(now, i)
			}
		}
		if len(e.feasible) == 0 {
			left = append(left, job)
			continue
		}
		d := e.plan(now, int(job), true)
		if d.Node == "" {
			left = append(left, job)
			continue
		}
		if err := e.place(now, int(job), d); err != nil {
			return err
		}
		room = e.room()
	}
	e.waiting = left
	return nil
}

// room returns the largest free amount of each resource over the freed nodes: a cheap bound for most of the queue.
func (e *engine) room() sched.Resources {
	var most sched.Resources
	for _, i := range e.freed {
		free := e.nodes[i].Free
		most.MilliCPU = max(most.MilliCPU, free.MilliCPU)
		most.Memory = max(most.Memory, free.Memory)
		most.GPU = max(most.GPU, free.GPU)
	}
	return most
}

// consider adds a node to those that a strategy is asked about.
func (e *engine) consider(now time.Time, i int) {
	e.meters.read(i, &e.nodes[i], now)
	e.feasible = append(e.feasible, &e.nodes[i])
}

// plan asks the strategy about one job, with e.feasible as its nodes.
func (e *engine) plan(now time.Time, job int, released bool) sched.Decision {
	e.snapshot.Now = now
	e.snapshot.Nodes = e.feasible
	e.snapshot.Queue[0] = e.scenario.Jobs[job]
	e.snapshot.Queue[0].Released = e.snapshot.Queue[0].Released || released
	e.result.Decisions++
	return e.strategy.Plan(&e.snapshot)[0]
}

// place carries out a decision that runs a job now.
func (e *engine) place(now time.Time, job int, d sched.Decision) error {
	i, ok := e.byName[d.Node]
	j := &e.scenario.Jobs[job]
	if !ok || !j.Fits(&e.nodes[i]) {
		return fmt.Errorf("strategy placed job %s on node %q, which has no room for it", j.ID, d.Node)
	}
	out := &e.result.Outcomes[job]
	out.Placed, out.Start, out.Finish = d, now, now.Add(e.nodes[i].Runtime(j))
	e.snapshot.Last = d.Node
	if err := e.begin(now, job, i); err != nil {
		return err
	}
	e.events.push(event{at: e.since(out.Finish), kind: completion, job: int32(job)})
	return nil
}

// begin puts a job on node i.
func (e *engine) begin(now time.Time, job, i int) error {
	n := &e.nodes[i]
	if err := e.account.settle(i, n, now); err != nil {
		return err
	}
	if n.Jobs == 0 {
		e.account.wake(i, n, now)
	}
	e.meters.place(i, n, job, &e.scenario.Jobs[job], now)
	*n = n.Place(e.scenario.Jobs[job].Request)
	e.meters.changed(i, n)
	e.running++
	return nil
}

func (e *engine) complete(now time.Time, job int) error {
	i := e.byName[e.result.Outcomes[job].Placed.Node]
	n := &e.nodes[i]
	if err := e.account.settle(i, n, now); err != nil {
		return err
	}
	e.meters.end(i, job, now)
	n.Free = n.Free.Add(e.scenario.Jobs[job].Request)
	n.Jobs--
	e.meters.changed(i, n)
	e.running--
	out := &e.result.Outcomes[job]
	e.result.BusyCPU += float64(e.scenario.Jobs[job].Request.MilliCPU) / 1000 * out.Finish.Sub(out.Start).Seconds()
	e.result.End = now
	e.freed = append(e.freed, i)
	return nil
}

// chartCounts records how many jobs run, wait and are held at the start of every timeline interval up to now.
func (e *engine) chartCounts(now time.Time) {
	for e.scenario.Start.Add(time.Duration(len(e.counts)) * e.account.step).Before(now) {
		e.counts = append(e.counts, counts{e.running, len(e.waiting), e.held})
	}
}

// finish settles all nodes at the end of the last job and fills the result.
func (e *engine) finish() error {
	r := e.result
	if r.End.IsZero() {
		r.End = e.scenario.Start
	}
	if err := e.settleAll(r.End); err != nil {
		return err
	}
	e.fill()
	return nil
}

func (e *engine) settleAll(t time.Time) error {
	for i := range e.nodes {
		if err := e.account.settle(i, &e.nodes[i], t); err != nil {
			return err
		}
	}
	e.result.Accounted = t
	return nil
}

func (e *engine) fill() {
	r := e.result
	r.Totals = e.account.total
	r.NodeEnergy = e.account.nodes
	r.Timeline = make([]Sample, len(e.account.bins))
	for k, b := range e.account.bins {
		s := &r.Timeline[k]
		s.Time = e.scenario.Start.Add(time.Duration(k) * e.account.step)
		length := min(e.account.step, r.Accounted.Sub(s.Time))
		s.Power = energy.Watts(float64(b.energy) / max(length.Seconds(), 1e-9))
		if b.energy > 0 {
			s.Intensity = grid.Intensity(float64(b.carbon) / b.energy.KWh())
		}
		if k < len(e.counts) {
			s.Running, s.Queued, s.Held = e.counts[k].running, e.counts[k].queued, e.counts[k].held
		}
	}
}
