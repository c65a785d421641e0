package sim

import (
	"context"
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

type counts struct{ running, queued, held int }

// chartCounts records the numbers of running, queued and held jobs at the start of every timeline interval up to
// now.
func (e *engine) chartCounts(now time.Time) {
	for e.scenario.Start.Add(time.Duration(len(e.counts)) * e.account.step).Before(now) {
		queued := e.waiting.length
		if e.batch != nil {
			queued = len(e.batch.jobs) - e.batch.inLine // jobs held in line count as held
		}
		if e.backfill != nil {
			queued = len(e.backfill.jobs)
		}
		e.counts = append(e.counts, counts{e.running, queued, e.held})
	}
}

// finish adds the energy of all nodes until the end of the last job and fills the result.
func (e *engine) finish() error {
	r := e.result
	if r.End.IsZero() {
		r.End = e.scenario.Start
	}
	until := r.End
	if e.machines != nil && e.machines.played.After(until) { // machines were woken for jobs that never ran
		until = e.machines.played
	}
	if err := e.bookAll(until); err != nil {
		return err
	}
	e.fill()
	return nil
}

// AccountUntil extends the accounting of r to t, with nodes as they are after the last job or going to sleep; see
// [Align]. Energy that is already accounted does not change.
func (r *Result) AccountUntil(t time.Time) error {
	if !t.After(r.Accounted) {
		return nil
	}
	if err := r.engine.rest(t); err != nil {
		return fmt.Errorf("accounting %s up to %s: %w", r.Strategy, t.Format(time.RFC3339), err)
	}
	r.engine.fill()
	return nil
}

// rest simulates the machines after the last job until t and adds their energy.
func (e *engine) rest(t time.Time) error {
	for len(e.events) > 0 && e.machines != nil && e.events[0].at <= e.since(t) {
		if err := e.instant(context.Background(), e.events[0].at); err != nil {
			return err
		}
	}
	return e.bookAll(t)
}

func (e *engine) bookAll(t time.Time) error {
	for i := range e.nodes {
		if err := e.account.bookUntil(i, &e.nodes[i], t); err != nil {
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
	r.Cells, r.CellStep = e.account.cells, perCell*e.account.step
	r.Sleep.Asleep = e.machines.sleptUntil(r.Accounted)
	r.Timeline = make([]Sample, len(e.account.bins))
	for k, b := range e.account.bins {
		s := &r.Timeline[k]
		s.Time = e.scenario.Start.Add(time.Duration(k) * e.account.step)
		length := min(e.account.step, r.Accounted.Sub(s.Time))
		seconds := max(length.Seconds(), 1e-9)
		s.Power = energy.Watts(float64(b.energy) / seconds)
		s.Idle, s.Asleep = energy.Watts(b.parts.idle/seconds), energy.Watts(b.parts.asleep/seconds)
		if b.energy > 0 {
			s.Intensity = grid.Intensity(float64(b.carbon) / b.energy.KWh())
		}
		if k < len(e.counts) {
			s.Running, s.Queued, s.Held = e.counts[k].running, e.counts[k].queued, e.counts[k].held
		}
	}
}
