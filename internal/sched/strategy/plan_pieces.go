package strategy

import (
	"cmp"
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// pieces returns the cheapest way to run an interruptible job in pieces on one row: in the cheapest slots with
// capacity, on as many replicas as worthwhile, by the greedy rule of [sched.Scale]. Other jobs may use the capacity
// of later slots, so the progress of the job never falls behind a start on the minimum number of replicas at the
// latest start.
func (t *timetable) pieces(p *booking, at int) place {
	r, scaling := &t.rows[at], cmp.Or(p.job.Scaling, sched.Rigid)
	one := p.job.On(1).Request
	length := t.runtime(p, r)
	relies := p.job.SpeedRelied()
	until := p.latest + time.Duration(float64(length)/relies)
	a := &t.offer
	*a = sched.Allotment{Scaling: scaling, Pieces: a.Pieces[:0], Room: a.Room[:0]}
	for k := max(int(p.earliest/t.slot), r.free); k < t.slots && time.Duration(k)*t.slot < until; k++ {
		cost := r.part(k, &p.job.Request, 1)
		if r.jobs[k] == 0 && r.rests(k) {
			cost += r.wake * r.price[k]
		}
		rate := cost / (t.slot.Seconds() * float64(scaling.Least))
		if last := len(a.Pieces) - 1; last >= 0 &&
			math.Abs(rate-a.Pieces[last].Rate) <= sched.Tolerance*math.Abs(rate) {
			rate = a.Pieces[last].Rate // rounding differences must not cause a delay
		}
		a.Pieces = append(a.Pieces, sched.Piece{
			Start: t.origin.Add(t.start(p, k)), End: t.origin.Add(min(time.Duration(k+1)*t.slot, until)), Rate: rate,
		})
		a.Room = append(a.Room, int(one.CountIn(r.node.Capacity.Sub(r.used[k]))))
	}
	if len(a.Pieces) == 0 {
		return nowhere
	}
	left := a.Fill(func(i int) float64 {
		return length.Seconds() - relies*t.origin.Add(until).Sub(a.Pieces[i].End).Seconds()
	}, length.Seconds())
	if left > sched.Tolerance*length.Seconds() {
		return nowhere
	}
	found := place{row: at, runs: joined(a.Stretches(0))}
	if len(found.runs) == 0 {
		return nowhere
	}
	found.slot = int(found.runs[0].Start.Sub(t.origin) / t.slot)
	found.cost = t.added(p, r, found.runs)
	if p.job.RestartCost > 0 && len(found.runs) > 1 {
		if whole := t.best(p, at, false); whole.cost <= found.cost {
			return whole
		}
	}
	return found
}

// joined returns the stretches in which a job runs. Adjacent stretches with the same number of replicas are merged.
func joined(all []sched.Stretch) (runs []sched.Stretch) {
	for _, s := range all {
		last := len(runs) - 1
		switch {
		case s.Replicas == 0:
		case last >= 0 && runs[last].Replicas == s.Replicas && runs[last].End.Equal(s.Start):
			runs[last].End = s.End
		default:
			runs = append(runs, s)
		}
	}
	return runs
}

// added returns the additional cost of running a booking in the given stretches on a row, including machine
// wake-ups and the work repeated after each break.
func (t *timetable) added(p *booking, r *row, runs []sched.Stretch) (cost float64) {
	for i, run := range runs {
		request := p.job.On(run.Replicas).Request
		start := run.Start.Sub(t.origin)
		end, first, last := t.ends(start, run.End.Sub(run.Start))
		from := int(start / t.slot)
		pause := i == 0 || runs[i-1].End.Before(run.Start)
		if pause && r.jobs[from] == 0 && r.rests(from) {
			cost += r.wake * r.price[from]
		}
		for k := from; k < end; k++ {
			share := 1.0
			switch k {
			case from:
				share = first
			case end - 1:
				share = last
			}
			part := r.part(k, &request, share)
			if cost += part; i > 0 && pause && k == from {
				cost += part / share * float64(p.job.RestartCost) / float64(t.slot)
			}
		}
	}
	return cost
}

// present returns the current number of replicas of a booking, and the time when it may change.
func (t *timetable) present(p *booking) (replicas int, again time.Time) {
	if len(p.runs) == 0 {
		return 0, again
	}
	first := p.runs[0]
	if p.job.Scaling != nil {
		replicas = first.Replicas
	}
	if len(p.runs) > 1 {
		again = t.tick(first.End)
	}
	return replicas, again
}

// behind reports whether a booking no longer has enough time to run on its own request.
func (t *timetable) behind(p *booking) bool {
	length := t.runtime(p, &t.rows[p.row])
	return p.earliest+length > p.latest+time.Duration(float64(length)/p.job.SpeedRelied())
}

// tick returns the planning time for a change at the given time: the next multiple of one twelfth of a slot, and
// later than now.
func (t *timetable) tick(at time.Time) time.Time {
	step := t.slot / 12
	at = timeutil.Later(at, t.s.Now.Add(1))
	return at.Add(step - 1).Truncate(step)
}

// goOn continues running jobs on their nodes: first on their minimum number of replicas, which have capacity there,
// and then on more replicas up to the planned number while there is capacity.
func (b *batch) goOn(running []*booking) {
	at := make(map[string]*sched.Node, len(b.nodes))
	for k := range b.nodes {
		at[b.nodes[k].Name] = &b.nodes[k]
	}
	for _, p := range running {
		if n := at[p.job.Place.Node]; n != nil {
			b.plan[p.index].Window.End = b.snapshot.Now.Add(n.Runtime(p.job))
			*n = n.Place(p.job.Request)
		}
	}
	for _, p := range running {
		d, n := &b.plan[p.index], at[p.job.Place.Node]
		if p.job.Scaling == nil || n == nil {
			continue
		}
		more := p.job.On(1).Request
		planned := d.Replicas
		for d.Replicas = p.job.Scaling.Least; d.Replicas < planned && more.Within(n.Free); d.Replicas++ {
			n.Free = n.Free.Sub(more)
		}
	}
}
