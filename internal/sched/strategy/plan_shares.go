package strategy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// maxShared is how many jobs get their pieces all at once. With more, each gets its own: that takes less time.
const maxShared = 2000

// shares reports whether the open jobs share out what room there is: where some of them rely on that, it is the cores
// of one machine, as of a cloud, and all of them are even. Memory or GPUs, gaps between machines, and what cannot be
// moved would make shares of cores a promise that is not kept.
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
		return !j.Even() || scarcer(j.Request.Memory, most.Memory) || scarcer(j.Request.GPU, most.GPU)
	})
}

// sharing is even jobs on one machine. A unit of work is what a thousandth of a core does in a slot.
type sharing struct {
	t *timetable
	r *row
}

// share is what a booking gets.
type share struct {
	p      *booking
	parts  []part
	urgent float64 // share of what it could do in the present slot
}

// part is work in a slot.
type part struct {
	slot int
	work float64
}

// shareOut plans bookings all at once, at the least cost that is possible on the room that there is, see
// [mincost.Fluid]. Which of them run now is decided by how much of the present slot each needs.
func (t *timetable) shareOut(bookings []booking, stop func() bool) {
	s := sharing{t, &t.rows[0]}
	// Of shares that cost the same, those in which jobs work now that could wait longest, mostly the longest ones,
	// saved most once others came.
	slices.SortStableFunc(bookings, func(x, y booking) int { return cmp.Compare(y.latest, x.latest) })
	// Where one is alone, no others are expected.
	values, rooms, whole := s.steps(reserved * (1 - 1/float64(len(bookings))))
	f := mincost.NewFluid(values, rooms)
	for i := range bookings {
		s.add(f, &bookings[i])
	}
	f.Solve(stop)
	f.Enlarge(whole) // for what there is no time for else
	f.Solve(stop)
	shares := make([]share, len(bookings))
	for i := range bookings {
		shares[i] = s.share(f, i, &bookings[i])
	}
	slices.SortStableFunc(shares, func(x, y share) int {
		switch {
		case math.Abs(x.urgent-y.urgent) > sched.Tolerance:
			return cmp.Compare(y.urgent, x.urgent)
		case x.p.job.Running && !y.p.job.Running: // rather than suspend one for another
			return -1
		case y.p.job.Running && !x.p.job.Running:
			return 1
		}
		return cmp.Compare(x.p.latest, y.p.latest)
	})
	for i := range shares {
		s.schedule(&shares[i])
	}
}

// Jobs are to come that will want the same clean hours: this share of the room that is reservedFrom ahead or farther is
// left free. docs/decisions/0040-plans.md has what other shares gave.
const (
	reserved     = 0.4
	reservedFrom = 12 * time.Hour
)

// steps returns what the free cores cost, slot by slot: the mean of what they draw more if all are used. Rooms are
// those that are not reserved, whole is all there is.
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

// add adds a booking, which may run until it has to be done, on as many replicas as it can. It is to be done by the end
// of a slot, since what others do in the slot of its deadline may be done first; and what relies on more replicas than
// it asks for by the end of the slot before that, as far as there is time.
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

// most is how much work of a booking can be done in a slot, or in the part of it before some time.
func (s *sharing) most(p *booking, slot int, until time.Duration) float64 {
	length := min(until, time.Duration(slot+1)*s.t.slot) - s.t.start(p, slot)
	return float64(p.job.Request.MilliCPU) * p.job.Fastest() * float64(length) / float64(s.t.slot)
}

// share returns what a booking got. What there is no time for, what may rest no longer, and what is to run now wants
// all of the present slot.
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

// mayRest reports whether a booking may do nothing until plans are made anew.
func (s *sharing) mayRest(p *booking) bool {
	return p.spread && s.t.tick(s.t.s.Now).Sub(s.t.origin) < p.latest
}

// schedule puts a booking on the machine. In the present slot those run that need most of it, as far as there is room,
// and others after them.
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
	rate := float64(one.MilliCPU) / float64(t.slot) // of one replica
	for i, got := range current.parts {
		from, to := t.start(p, got.slot), time.Duration(got.slot+1)*t.slot
		n := int(math.Ceil(got.work/(rate*float64(to-from)) - sched.Tolerance))
		n = min(max(n, scaling.Least), scaling.Most())
		if i == 0 && current.urgent > 0 {
			if room < scaling.Least && s.mayRest(p) { // others run first
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
