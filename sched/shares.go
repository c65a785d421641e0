package sched

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// even reports whether a job may be suspended at no cost, and gets as much done with each of its replicas.
func (j *Job) even() bool {
	if !j.Interruptible || j.RestartCost > 0 {
		return false
	}
	return j.Scaling == nil || j.fastest()*float64(j.Scaling.Least) > float64(j.Scaling.Most())*(1-tolerance)
}

// fastest is how many times as fast as on what it asks for a job may run.
func (j *Job) fastest() float64 {
	if j.Scaling == nil {
		return 1
	}
	return j.Scaling.Rate(j.Scaling.Most())
}

// latestEven returns until when an even job may rest: where room for more replicas is assured, as late as is in time on
// all of them.
func (s *Snapshot) latestEven(j *Job) time.Time {
	if !j.RoomAssured {
		return s.latest(j)
	}
	left, until, _ := s.promise(j, j.left())
	return until.Add(-time.Duration(float64(left) / j.fastest()))
}

// mostShared is how many even jobs get their pieces all at once. Of more, each gets its own: that takes less time.
const mostShared = 4000

// countEven counts the even jobs that are open.
func (b *batch) countEven() (count int) {
	for _, i := range b.open {
		if b.job(i).even() {
			count++
		}
	}
	return count
}

// evenLast brings bookings of even jobs to the end, and returns how many others there are.
func evenLast(bookings []booking) (others int) {
	rank := func(p *booking) int {
		if p.even {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(bookings, func(x, y booking) int { return rank(&x) - rank(&y) })
	if others = slices.IndexFunc(bookings, func(p booking) bool { return p.even }); others < 0 {
		return len(bookings)
	}
	return others
}

// sharing is even jobs on machines of several kinds: each kind is one pool of cores. A unit of work is what a
// thousandth of a core of a machine of speed 1 does in a slot. Steps are the slots of the first pool, then those of the
// next.
type sharing struct {
	t     *timetable
	pools [][]int // rows of machines that are alike
}

// share is what a booking gets in one pool, from the first slot on in which it gets anything.
type share struct {
	p      *booking
	pool   int // -1: it gets nothing
	parts  []part
	urgent float64 // share of what it could do in the present slot
}

// part is work in a slot.
type part struct {
	slot int
	work float64
}

// shareOut plans bookings of even jobs all at once, at the least cost that is possible on the room that is left, see
// [Fluid]. Which of them runs now is decided by how much of the present slot each needs, see [sharing.settle].
func (t *timetable) shareOut(bookings []booking, stop func() bool) {
	if len(bookings) == 0 {
		return
	}
	s := sharing{t: t}
	number := map[int]int{}
	for i := range t.rows {
		pool, known := number[t.rows[i].like]
		if !known {
			pool = len(s.pools)
			number[t.rows[i].like] = pool
			s.pools = append(s.pools, nil)
		}
		s.pools[pool] = append(s.pools[pool], i)
	}
	// Of shares that cost the same, those in which jobs work now that could wait longest, mostly the longest ones,
	// saved most once others came.
	slices.SortStableFunc(bookings, func(x, y booking) int { return cmp.Compare(y.latest, x.latest) })
	f := s.steps()
	for i := range bookings {
		s.add(f, &bookings[i])
	}
	f.Solve(stop)
	shares := make([]share, len(bookings))
	for i := range bookings {
		shares[i] = s.share(f, i, &bookings[i])
	}
	slices.SortStableFunc(shares, func(x, y share) int {
		if math.Abs(x.urgent-y.urgent) > tolerance {
			return cmp.Compare(y.urgent, x.urgent)
		}
		if x.p.job.Running != y.p.job.Running { // rather than suspend one for another
			return map[bool]int{true: -1, false: 1}[x.p.job.Running]
		}
		return cmp.Compare(x.p.latest, y.p.latest)
	})
	for i := range shares {
		s.settle(&shares[i])
	}
}

// Jobs are to come that will want the same clean hours: of what is reservedFrom ahead or farther, this share of the
// room is left to them. docs/decisions/0040-plans.md has what other shares gave.
const (
	reserved     = 0.2
	reservedFrom = 12 * time.Hour
)

// steps returns what the free cores of each pool cost, slot by slot: the mean of what they draw more if all are used.
func (s *sharing) steps() *Fluid {
	t := s.t
	values, rooms := make([]float64, len(s.pools)*t.slots), make([]float64, len(s.pools)*t.slots)
	for i, pool := range s.pools {
		for k := range t.slots {
			at := i*t.slots + k
			for _, row := range pool {
				r := &t.rows[row]
				free := Resources{MilliCPU: r.node.Capacity.MilliCPU - r.used[k].MilliCPU}
				if free.MilliCPU > 0 && k >= r.free {
					values[at] += r.part(k, &free, 1)
					rooms[at] += float64(free.MilliCPU) * r.speed()
				}
			}
			if rooms[at] > 0 {
				values[at] /= rooms[at]
			}
			ahead := time.Duration(k) * t.slot
			rooms[at] *= 1 - reserved*min(1, float64(ahead)/float64(reservedFrom))
			if k == 0 {
				rooms[at] *= 1 - float64(t.offset())/float64(t.slot)
			}
		}
	}
	return NewFluid(values, rooms)
}

func (r *row) speed() float64 { return cmp.Or(r.node.Speed, 1) }

// add adds a booking, which may run until it has to be done, on as many replicas as it can. It is to be done by the end
// of a slot, since what others do in the slot of its deadline may be done first; and what relies on more replicas than
// it asks for by the end of the slot before that, as far as there is time.
func (s *sharing) add(f *Fluid, p *booking) {
	t, fastest := s.t, p.job.fastest()
	f.Add(float64(p.job.Request.MilliCPU) * p.job.remaining().Seconds() / t.slot.Seconds())
	for i, pool := range s.pools {
		if !slices.ContainsFunc(pool, func(row int) bool { return t.rows[row].offers(p.job) }) {
			continue
		}
		r := &t.rows[pool[0]]
		least := time.Duration(float64(t.runtime(p, r)) / fastest)
		until := p.latest + least
		spare := until % t.slot
		if fastest > 1 {
			spare += t.slot
		}
		until = max(until-spare, p.earliest+least)
		for k := int(p.earliest / t.slot); k < t.slots && time.Duration(k)*t.slot < until; k++ {
			f.Allow(i*t.slots+k, s.most(p, i, k, until))
		}
	}
}

// most is how much work of a booking can be done in a pool in a slot, or in the part of it before some time.
func (s *sharing) most(p *booking, pool, slot int, until time.Duration) float64 {
	t := s.t
	length := min(until, time.Duration(slot+1)*t.slot) - t.start(p, slot)
	speed := t.rows[s.pools[pool][0]].speed()
	return float64(p.job.Request.MilliCPU) * p.job.fastest() * speed * float64(length) / float64(t.slot)
}

// share returns what a booking got in the pool in which it begins first. A later plan may let it go on elsewhere.
func (s *sharing) share(f *Fluid, job int, p *booking) share {
	t, present := s.t, int(p.earliest/s.t.slot)
	is := share{p: p, pool: -1}
	first := t.slots
	for step := range f.Used(job) {
		if slot := step % t.slots; slot < first {
			is.pool, first = step/t.slots, slot
		}
	}
	for step, work := range f.Used(job) {
		if step/t.slots == is.pool {
			is.parts = append(is.parts, part{step % t.slots, work})
		}
	}
	late := f.Left[job] > f.least || p.job.Released // there is no time for all of it, or it is to run now
	switch {
	case late && len(f.arcs[job]) > 0:
		is.pool = f.arcs[job][0].step / t.slots
		is.parts = slices.DeleteFunc(is.parts, func(got part) bool { return got.slot == present })
		is.parts = slices.Insert(is.parts, 0, part{present, s.most(p, is.pool, present, maxDuration)})
		is.urgent = 1
	case first == present:
		is.urgent = is.parts[0].work / s.most(p, is.pool, present, maxDuration)
	}
	return is
}

// settle puts a booking on a row of its pool. In the present slot those run that need most of it, as far as there is
// room, and others after them.
func (s *sharing) settle(is *share) {
	t, p := s.t, is.p
	p.place = nowhere
	if is.pool < 0 {
		return
	}
	scaling := p.job.Scaling
	if scaling == nil {
		scaling = rigid
	}
	one := p.job.On(1).Request
	first, room := is.parts[0].slot, 0
	for _, at := range s.pools[is.pool] {
		if r := &t.rows[at]; r.offers(p.job) {
			n := int(one.CountIn(r.node.Capacity.Sub(r.used[first])))
			if p.row < 0 || n > room {
				p.row, room = at, n
			}
		}
		if room >= scaling.Most() {
			break
		}
	}
	r := &t.rows[p.row]
	for i, got := range is.parts {
		from, to := t.start(p, got.slot), time.Duration(got.slot+1)*t.slot
		rate := float64(one.MilliCPU) * r.speed() / float64(t.slot) // of one replica
		n := int(math.Ceil(got.work/(rate*float64(to-from)) - tolerance))
		n = min(max(n, scaling.Least), scaling.Most())
		if i == 0 && is.urgent > 0 {
			if room < scaling.Least { // others run first
				from = min(t.tick(t.s.Now).Sub(t.origin), to-1)
			}
			n = min(n, max(room, scaling.Least))
		}
		length := time.Duration(math.Ceil(got.work / (rate * float64(n))))
		begin := t.origin.Add(from)
		p.runs = append(p.runs, Stretch{Window{begin, begin.Add(min(length, to-from))}, n})
	}
	p.runs = joined(p.runs)
	p.slot = int(p.runs[0].Start.Sub(t.origin) / t.slot)
	p.cost = t.added(p, r, p.runs)
	t.put(p, 1)
}
