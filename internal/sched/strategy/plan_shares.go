package strategy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// maxShared is the maximum number of jobs that are planned jointly in pieces. Larger queues are planned job by job,
// which is faster.
const maxShared = 2000

// shares reports whether the open jobs share the available capacity. This requires that some of them rely on
// additional replicas, that there is one machine with cores as the scarcest resource, like a cloud, and that all
// jobs are even. Memory, GPUs, fragmentation between machines and jobs that cannot be suspended could prevent a
// fraction of the cores from being available as planned.
func (b *batch) shares() bool {
	relies := func(i int) bool { return b.job(i).SpeedRelied() > 1 }
	if len(b.nodes) != 1 || b.nodes[0].Profile == nil || len(b.open) > maxShared ||
		!slices.ContainsFunc(b.open, relies) {
		return false
	}
	most := b.nodes[0].Capacity
	return !slices.ContainsFunc(b.open, func(i int) bool {
		j := b.job(i)
		scarcer := func(asks, all int64) bool {
			return float64(asks)*float64(most.MilliCPU) > float64(all)*float64(j.Request.MilliCPU)
		}
		return !j.Even() || scarcer(j.Request.Memory, most.Memory) || scarcer(j.Request.GPU, most.GPU) ||
			scarcer(j.Request.MilliGPU, most.MilliGPU)
	})
}

// sharing plans even jobs on one machine. A unit of work is the work of one millicore in one slot.
type sharing struct {
	t *timetable
	r *row
}

// share is the work assigned to a booking.
type share struct {
	p      *booking
	parts  []part
	urgent float64 // assigned work relative to the maximum in the current slot
}

// part is the work in one slot.
type part struct {
	slot int
	work float64
}

// shareOut plans all bookings jointly at the lowest possible cost within the available capacity, see
// [mincost.Fluid]. The jobs that need the largest fraction of the current slot run now.
func (t *timetable) shareOut(bookings []booking, stop func() bool) {
	s := sharing{t, &t.rows[0]}
	// Among plans with the same cost, the plans that first run the jobs with the latest starts, which are mostly
	// the longest jobs, saved the most when further jobs arrived.
	slices.SortStableFunc(bookings, func(x, y booking) int { return cmp.Compare(y.latest, x.latest) })
	// A single job does not reserve capacity for others.
	values, rooms, whole := s.steps(reserved * (1 - 1/float64(len(bookings))))
	f := mincost.NewFluid(values, rooms)
	for i := range bookings {
		s.add(f, &bookings[i])
	}
	f.Solve(stop)
	f.Enlarge(whole) // for work that does not fit otherwise
	f.Solve(stop)
	shares := make([]share, len(bookings))
	for i := range bookings {
		shares[i] = s.share(f, i, &bookings[i])
	}
	slices.SortStableFunc(shares, func(x, y share) int {
		if math.Abs(x.urgent-y.urgent) > sched.Tolerance {
			return cmp.Compare(y.urgent, x.urgent)
		}
		// avoid suspending one job for another
		return cmp.Or(sliceutil.TrueFirst(x.p.job.Running, y.p.job.Running), cmp.Compare(x.p.latest, y.p.latest))
	})
	for i := range shares {
		s.schedule(&shares[i])
	}
}

// reserved is the fraction of the capacity at least reservedFrom ahead that is kept free, because future jobs will
// compete for the same clean hours. The results for other values are in docs/decisions/0040-plans.md.
const (
	reserved     = 0.4
	reservedFrom = 12 * time.Hour
)

// steps returns, per slot, the mean cost of the free cores if all of them are used, the capacity excluding the
// reserved fraction, and the whole capacity.
func (s *sharing) steps(reserve float64) (values, rooms, whole []float64) {
	t := s.t
	values, rooms, whole = make([]float64, t.slots), make([]float64, t.slots), make([]float64, t.slots)
	for k := s.r.free; k < t.slots; k++ {
		free := sched.Resources{MilliCPU: s.r.node.Capacity.MilliCPU - s.r.used[k].MilliCPU}
		if free.MilliCPU <= 0 {
			continue
		}
		whole[k] = float64(free.MilliCPU)
		values[k] = s.r.part(k, &free, 1) / whole[k]
		if k == 0 {
			whole[k] *= 1 - float64(t.offset())/float64(t.slot)
		}
		ahead := time.Duration(k) * t.slot
		rooms[k] = whole[k] * (1 - reserve*min(1, float64(ahead)/float64(reservedFrom)))
	}
	return values, rooms, whole
}

// add adds a booking, which may run on the maximum number of replicas until its deadline. It must finish by the end
// of the last whole slot before the deadline, because other jobs may run first in the slot of the deadline. A job
// that relies on additional replicas must finish one slot earlier if time permits.
func (s *sharing) add(f *mincost.Fluid, p *booking) {
	t := s.t
	length := t.runtime(p, s.r)
	f.Add(float64(p.job.Request.MilliCPU) * float64(length) / float64(t.slot))
	if !s.r.offers(p.job) {
		return
	}
	least := time.Duration(float64(length) / p.job.Fastest())
	until := p.latest + time.Duration(float64(length)/p.job.SpeedRelied())
	spare := until % t.slot
	if p.job.SpeedRelied() > 1 {
		spare += t.slot
	}
	until = max(until-spare, p.earliest+least)
	for k := int(p.earliest / t.slot); k < t.slots && time.Duration(k)*t.slot < until; k++ {
		f.Allow(k, s.most(p, k, until))
	}
}

// most returns the maximum work of a booking in a slot, or in the part of the slot before until.
func (s *sharing) most(p *booking, slot int, until time.Duration) float64 {
	length := min(until, time.Duration(slot+1)*s.t.slot) - s.t.start(p, slot)
	return float64(p.job.Request.MilliCPU) * p.job.Fastest() * float64(length) / float64(s.t.slot)
}

// share returns the assignment of a booking. Jobs that are late, that must not pause any longer or that are
// released use the whole current slot.
func (s *sharing) share(f *mincost.Fluid, job int, p *booking) share {
	current, present := share{p: p}, int(p.earliest/s.t.slot)
	for slot, work := range f.Used(job) {
		current.parts = append(current.parts, part{slot, work})
	}
	switch {
	case len(current.parts) == 0 || f.Left[job] > f.Least || p.job.Released || !s.mayRest(p):
		current.parts = slices.DeleteFunc(current.parts, func(got part) bool { return got.slot == present })
		current.parts = slices.Insert(current.parts, 0, part{present, s.most(p, present, sched.MaxDuration)})
		current.urgent = 1
	case current.parts[0].slot == present:
		current.urgent = current.parts[0].work / s.most(p, present, sched.MaxDuration)
	}
	return current
}

// mayRest reports whether a booking may pause until the next planning time.
func (s *sharing) mayRest(p *booking) bool {
	return p.spread && s.t.tick(s.t.s.Now).Sub(s.t.origin) < p.latest
}

// schedule adds a booking to the timetable of the machine. In the current slot, the most urgent jobs run first
// while there is capacity, and the others follow.
func (s *sharing) schedule(current *share) {
	t, r, p := s.t, s.r, current.p
	p.place = nowhere
	if !r.offers(p.job) {
		return
	}
	scaling := cmp.Or(p.job.Scaling, sched.Rigid)
	one := p.job.On(1).Request
	first, room := current.parts[0].slot, 0
	if first >= r.free {
		room = int(one.CountIn(r.node.Capacity.Sub(r.used[first])))
	}
	rate := float64(one.MilliCPU) / float64(t.slot) // per replica
	for i, got := range current.parts {
		from, to := t.start(p, got.slot), time.Duration(got.slot+1)*t.slot
		n := int(math.Ceil(got.work/(rate*float64(to-from)) - sched.Tolerance))
		n = min(max(n, scaling.Least), scaling.Most())
		if i == 0 && current.urgent > 0 {
			if room < scaling.Least && s.mayRest(p) { // other jobs run first
				from = min(t.tick(t.s.Now).Sub(t.origin), to-1)
			}
			n = min(n, max(room, scaling.Least))
		}
		length := time.Duration(math.Ceil(got.work / (rate * float64(n))))
		begin := t.origin.Add(from)
		p.runs = append(p.runs, sched.Stretch{
			Window: sched.Window{Start: begin, End: begin.Add(min(length, to-from))}, Replicas: n,
		})
	}
	p.row, p.runs = 0, joined(p.runs)
	p.slot = int(p.runs[0].Start.Sub(t.origin) / t.slot)
	p.cost = t.added(p, r, p.runs)
	t.put(p, 1)
}
