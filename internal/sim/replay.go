package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// Placement is an observed execution of a job.
type Placement struct {
	Job      int // index in Scenario.Jobs
	Node     string
	Hold     time.Time // end of the hold; zero if it was not held
	Released time.Time
	Start    time.Time
	Finish   time.Time
}

// Replay computes the energy of the placements of another system, e.g. a real scheduler, with the same model as
// [Run]. Observed times may overlap by the latency of the observer, so capacity is not checked. Machines that take
// time to boot change their state according to power, which must be sorted by time for each machine. All machines
// are awake initially.
func Replay(s *Scenario, name string, placements []Placement, power []PowerChange) (*Result, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	e := newEngine(s, nil)
	e.result.Strategy = name
	for k := range placements {
		p := &placements[k]
		if _, ok := e.byName[p.Node]; !ok || p.Start.Before(s.Start) || !p.Finish.After(p.Start) {
			return nil, fmt.Errorf("replaying %s: job %s on node %q from %s to %s is not possible in this scenario",
				name, s.Jobs[p.Job].ID, p.Node, p.Start, p.Finish)
		}
		out := &e.result.Outcomes[p.Job]
		out.Released, out.Start, out.Finish = p.Released, p.Start, p.Finish
		out.Placed = Placed{Node: p.Node}
		if !p.Hold.IsZero() {
			out.Hold = &sched.Decision{
				Job: s.Jobs[p.Job].ID, Window: sched.Window{Start: p.Hold},
				Reason: sched.Reason{Kind: sched.CheaperLater},
			}
		}
		e.events.push(event{at: e.since(p.Start), kind: arrival, job: int32(p.Job)})
		e.events.push(event{at: e.since(p.Finish), kind: completion, job: int32(p.Job)})
	}
	for k, p := range power {
		if i, ok := e.byName[p.Node]; !ok || e.machines == nil || e.machines.of[i] < 0 || p.At.Before(s.Start) {
			return nil, fmt.Errorf("replaying %s: node %q cannot be %s at %s in this scenario", name, p.Node, p.State,
				p.At)
		}
		e.events.push(event{at: e.since(p.At), kind: booted, job: int32(k)})
	}
	for len(e.events) > 0 {
		if err := e.observe(e.events.pop(), power); err != nil {
			return nil, fmt.Errorf("replaying %s: %w", name, err)
		}
	}
	if err := e.finish(); err != nil {
		return nil, fmt.Errorf("replaying %s: %w", name, err)
	}
	return e.result, nil
}

// observe applies an observed event.
func (e *engine) observe(ev event, power []PowerChange) error {
	now := e.scenario.Start.Add(time.Duration(ev.at))
	e.chartCounts(now)
	switch ev.kind {
	case completion:
		return e.complete(now, ev.at, int(ev.job))
	case booted:
		e.machines.played = now
		return e.switchMachine(now, e.machines.of[e.byName[power[ev.job].Node]], power[ev.job].State)
	}
	out := &e.result.Outcomes[ev.job]
	i := e.byName[out.Placed.Node]
	out.Placed.Cost = e.snapshot.Estimate(&e.scenario.Jobs[ev.job], &e.nodes[i],
		sched.Window{Start: out.Start, End: out.Finish})
	return e.begin(now, int(ev.job), i)
}

// Align extends the accounting of all results to the end of the longest, so that all results cover the same hours
// of empty nodes. It returns that end.
func Align(results ...*Result) (time.Time, error) {
	if len(results) == 0 {
		return time.Time{}, nil
	}
	end := slices.MaxFunc(results, func(a, b *Result) int { return a.Accounted.Compare(b.Accounted) }).Accounted
	for _, r := range results {
		if err := r.AccountUntil(end); err != nil {
			return end, err
		}
	}
	return end, nil
}
