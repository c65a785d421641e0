package strategy

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// timetable is what runs on each machine, slot by slot: what runs there already, and what is planned. Cores and memory
// are those of whole slots, also where a job runs in a part of one, unless it may be suspended. Power is that of the
// part.
type timetable struct {
	s      *sched.Snapshot
	origin time.Time // when the first slot begins: at a round time, as values of signals do
	slot   time.Duration
	slots  int
	// longer jobs are planned as if they took so long: what comes after is about the same wherever they start
	longest time.Duration
	rows    []row
	// by slot, of the search for one job on one row: what the slots before it add, and how many have no room
	sums         []float64
	lastSlotCost []float64 // what the share of its last slot costs, were it this one
	noRoom       []int32
	bootCost     []float64           // what machines cost that wake in the slots before it
	tried        []int32             // by row that others are like
	offer        sched.Allotment     // of the search for the pieces of a job that may be suspended
	cores        map[*float64]*cores // by prices that rows share: see taken
	never        float64             // far more than a place costs that is in time
}

// row is a machine, or rather its slots.
type row struct {
	node    sched.Node        // with nothing on it
	used    []sched.Resources // what is taken of its room
	load    []sched.Resources // the mean of what runs, by which it draws power
	jobs    []int32           // that touch the slot: it is awake for all of it
	price   []float64         // of a watt in the whole slot, by the policy's weights; shared
	free    int               // slot from which it may work: it boots until then
	up      bool              // before its first slot it works, or is awake
	like    int               // the first row that this one does not differ from while nothing is on either
	idle    energy.Watts      // awake, with nothing on it
	draws   []energy.Watts    // by slot, what it draws beyond sleep; NaN: to be found out
	wake    float64           // of one boot, as watts in one slot
	touched int               // jobs that run on it or are planned there
	alone   float64           // how sure the machine is awake for the jobs of the timetable alone, 0 to 1
}

// booking is a job in a timetable. Times are since its first slot begins.
type booking struct {
	job              *sched.Job
	index            int // in the queue
	earliest, latest time.Duration
	kept             bool // it is where the last plan had it
	spread           bool // it may be suspended, and run in pieces
	place
}

// place is where and when a job runs.
type place struct {
	row  int // -1: nowhere
	slot int // in which it starts
	cost float64
	runs []sched.Stretch // of a job that is spread; none: it runs in one piece
}

var nowhere = place{row: -1, cost: math.Inf(1)}

// offset is how much of the first slot is over.
func (t *timetable) offset() time.Duration { return t.s.Now.Sub(t.origin) }

// start returns when a booking starts that is put into a slot: at its beginning, or as soon as it may.
func (t *timetable) start(p *booking, slot int) time.Duration {
	return max(p.earliest, time.Duration(slot)*t.slot)
}

// runtime returns how long a booking takes on a row.
func (t *timetable) runtime(p *booking, r *row) time.Duration {
	return min(max(r.node.Runtime(p.job), 1), t.longest)
}

// ends returns the slot after the last one that a booking takes, and which shares of its first and its last slot it
// runs: the same share where there is but one.
func (t *timetable) ends(start, length time.Duration) (end int, first, last float64) {
	until := start + length
	end = int((until + t.slot - 1) / t.slot)
	from := start / t.slot * t.slot
	if from+t.slot >= until {
		share := float64(length) / float64(t.slot)
		return end, share, share
	}
	first = 1 - float64(start-from)/float64(t.slot)
	return end, first, 1 - float64(time.Duration(end)*t.slot-until)/float64(t.slot)
}

// watts returns what a machine draws beyond sleep with some load of so many jobs. What it draws for being awake counts
// as far as others do not keep it awake: for the rest each job pays for its share of the machine.
func (r *row) watts(load sched.Resources, jobs int32) energy.Watts {
	if jobs == 0 {
		return 0
	}
	n := &r.node
	n.Free = n.Capacity.Sub(load)
	busy := n.Running() - r.idle
	n.Free = n.Capacity
	share := float64(load.MilliCPU) / float64(max(n.Capacity.MilliCPU, 1))
	return busy + (r.idle-n.Profile.Sleep)*energy.Watts(r.alone+(1-r.alone)*share)
}

// unknownWatts is a draw that is yet to be found out.
var unknownWatts = energy.Watts(math.NaN())

// more returns how much more a machine draws in a slot with one more load.
func (r *row) more(k int, load sched.Resources) energy.Watts {
	if math.IsNaN(float64(r.draws[k])) {
		r.draws[k] = r.watts(r.load[k], r.jobs[k])
	}
	return r.watts(r.load[k].Add(load), r.jobs[k]+1) - r.draws[k]
}

// part returns what a share of a job costs in a slot.
func (r *row) part(k int, request *sched.Resources, share float64) float64 {
	return float64(r.more(k, *request)) * share * r.price[k]
}

// best returns where a booking costs least on one row, of equal places the earliest. Where it does not fit by its
// latest start, late says that any later place will do, the earliest one.
func (t *timetable) best(p *booking, at int, late bool) place {
	r := &t.rows[at]
	length := t.runtime(p, r)
	first := max(int(p.earliest/t.slot), r.free)
	final := min(int(p.latest/t.slot), t.slots-1)
	if late {
		final = t.slots - 1
	}
	if first > final {
		return nowhere
	}
	past, _, _ := t.ends(t.start(p, final), length)
	whole, room := t.sum(r, p, length, first, min(past, t.slots))
	best := nowhere
	if !room {
		return best
	}
	for k := first; k <= final; k++ {
		var c float64
		switch end := k + whole; {
		case k == first, whole == 1, late:
			c = t.cost(p, r, k, length)
		case end > t.slots || t.noRoom[end] != t.noRoom[k]:
			continue
		default: // it starts with the slot
			c = t.sums[end-1] - t.sums[k] + t.lastSlotCost[end-1] + t.woken(r, k, end)
		}
		if c < best.cost-sched.Tolerance*math.Abs(c) {
			if best = (place{row: at, slot: k, cost: c}); late {
				break
			}
		}
	}
	return best
}

// sum fills sums, lastSlotCost, noRoom and bootCost for a request of a length from one slot to another, unless there is
// room for it nowhere. It returns how many slots it takes, if it starts with one.
func (t *timetable) sum(r *row, p *booking, length time.Duration, from, to int) (whole int, room bool) {
	request := &p.job.Request
	whole, _, last := t.ends(0, length)
	t.sums[from], t.noRoom[from], t.bootCost[from] = 0, 0, 0
	free := 0 // slots on end
	for k := from; k < to; k++ {
		t.noRoom[k+1] = t.noRoom[k]
		if free++; !request.Within(r.node.Capacity.Sub(r.used[k])) {
			t.noRoom[k+1]++
			free = 0
		}
		room = room || free >= whole
	}
	if !room {
		return whole, false
	}
	var full energy.Watts
	for k := from; k < to; k++ {
		if k == from || r.load[k] != r.load[k-1] || (r.jobs[k] == 0) != (r.jobs[k-1] == 0) {
			full = r.more(k, *request)
		}
		t.sums[k+1], t.lastSlotCost[k] = t.sums[k]+float64(full)*r.price[k], float64(full)*last*r.price[k]
		t.bootCost[k+1] = t.bootCost[k]
		if r.wakes(k) {
			t.bootCost[k+1] += r.wake * r.price[k]
		}
	}
	return whole, true
}

// rests reports whether nothing runs on the machine just before a slot, so that it is asleep.
func (r *row) rests(k int) bool { return k > 0 && r.jobs[k-1] == 0 || k == 0 && !r.up }

// wakes reports whether the machine has to wake for a slot.
func (r *row) wakes(k int) bool { return r.jobs[k] > 0 && r.rests(k) }

// cost returns what a booking adds that starts in a slot, after sum; infinite where there is no room.
func (t *timetable) cost(p *booking, r *row, k int, length time.Duration) (c float64) {
	start := t.start(p, k)
	end, first, last := t.ends(start, length)
	if end > t.slots || t.noRoom[end] != t.noRoom[k] {
		return math.Inf(1)
	}
	switch {
	case end == k+1:
		c = r.part(k, &p.job.Request, first)
	case first == 1:
		c = t.sums[end-1] - t.sums[k] + t.lastSlotCost[end-1]
	default:
		c = r.part(k, &p.job.Request, first) + t.sums[end-1] - t.sums[k+1] + r.part(end-1, &p.job.Request, last)
	}
	if late := start - p.latest; late > 0 {
		c += t.never * (1 + float64(late)/float64(t.slot)) / float64(t.slots)
	}
	return c + t.woken(r, k, end)
}

// woken returns what a machine costs more to wake if it works from one slot to another: what would wake within that
// time or right after it need not, and it wakes for that itself where it rests.
func (t *timetable) woken(r *row, k, end int) (c float64) {
	if r.wake == 0 {
		return 0
	}
	c = t.bootCost[k] - t.bootCost[end]
	if r.rests(k) {
		c += r.wake * r.price[k]
	}
	if end < t.slots && r.wakes(end) {
		c -= r.wake * r.price[end]
	}
	return c
}

// put takes a booking into the timetable, or with by = -1 out of it.
func (t *timetable) put(p *booking, by int) {
	r := &t.rows[p.row]
	if p.runs == nil {
		t.occupy(r, p.job.Request, t.start(p, p.slot), t.runtime(p, r), by, false)
	}
	for _, run := range p.runs {
		t.occupy(r, p.job.On(run.Replicas).Request, run.Start.Sub(t.origin), run.End.Sub(run.Start), by, true)
	}
}

// occupy takes room on a row, or gives it back. What may be suspended takes turns within a slot: of later slots it
// takes but its share of the room. What runs in the first slot all runs now.
func (t *timetable) occupy(r *row, request sched.Resources, start, length time.Duration, by int, turns bool) {
	end, first, last := t.ends(start, length)
	from := int(start / t.slot)
	r.touched += by
	for k := from; k < min(end, t.slots); k++ {
		load := request
		switch k {
		case from:
			load = request.Share(first)
		case end - 1:
			load = request.Share(last)
		}
		r.jobs[k] += int32(by)
		room := request
		if turns && k > 0 {
			room = load
		}
		r.used[k], r.load[k] = r.used[k].Plus(by, room), r.load[k].Plus(by, load)
		r.draws[k] = unknownWatts
	}
}

// insert puts a booking where it costs least: by its latest start if there is room, else as soon as there is. Some rows
// may be skipped.
func (t *timetable) insert(p *booking, skipped []bool) {
	for _, late := range [2]bool{false, true} {
		if t.find(p, skipped, late); p.row >= 0 {
			t.put(p, 1)
			return
		}
	}
	p.cost = t.never
}

// find finds where a booking costs least. Of each kind of machine so many that have room are looked at.
func (t *timetable) find(p *booking, skipped []bool, late bool) {
	p.place = nowhere
	clear(t.tried)
	for at := range t.rows {
		kind := t.rows[at].like
		if t.tried[kind] == maxAlike || skipped != nil && skipped[at] ||
			!p.job.Running && t.repeats(at) || !t.rows[at].offers(p.job) {
			continue
		}
		var found place
		if p.spread && !late {
			found = t.pieces(p, at)
		} else {
			found = t.best(p, at, late)
		}
		if found.row < 0 {
			continue
		}
		t.tried[kind]++
		digits := sched.Tolerance * math.Abs(found.cost)
		sooner := found.slot < p.slot // which decides between equal ones
		if found.cost < p.cost-digits || sooner && found.cost <= p.cost+digits {
			p.place = found
		}
	}
}

// maxAlike is how many machines of a kind are looked at for a job: more of them make little difference.
const maxAlike = 8

// repeats reports whether a row before this one is the same.
func (t *timetable) repeats(at int) bool {
	r := &t.rows[at]
	return r.touched == 0 && r.like != at && t.rows[r.like].touched == 0
}

// offers reports whether a job may run on a row.
func (r *row) offers(j *sched.Job) bool {
	if j.Running { // it goes on where it is
		return j.Place.Node == r.node.Name
	}
	return j.Request.Within(r.node.Capacity) && j.MayRunAt(r.node.Site) && j.Selects(&r.node)
}

// costs returns what a booking adds in a place that it was taken from.
func (t *timetable) costs(p *booking, at place) float64 {
	if at.row < 0 {
		return t.never
	}
	r := &t.rows[at.row]
	if at.runs != nil {
		return t.added(p, r, at.runs)
	}
	length := t.runtime(p, r)
	end, _, _ := t.ends(t.start(p, at.slot), length)
	if _, room := t.sum(r, p, length, at.slot, min(end, t.slots)); !room {
		return math.Inf(1)
	}
	return t.cost(p, r, at.slot, length)
}

// remove takes a booking out.
func (t *timetable) remove(p *booking) {
	if p.row >= 0 {
		t.put(p, -1)
	}
	p.row = -1
}

// alone returns the slot in which a booking would start on its row if nothing else counted than when power is cheapest:
// the one that it has if no other is cheaper by a hundredth.
func (t *timetable) alone(p *booking) (slot int) {
	r := &t.rows[p.row]
	length := t.runtime(p, r)
	whole := t.sums // of the price, from the first slot on
	for k, price := range r.price {
		whole[k+1] = whole[k] + price
	}
	until := func(at time.Duration) float64 {
		k := min(int(at/t.slot), t.slots-1)
		return whole[k] + r.price[k]*float64(at-time.Duration(k)*t.slot)/float64(t.slot)
	}
	cost := func(slot int) float64 { return until(t.start(p, slot)+length) - until(t.start(p, slot)) }
	const clearly = 0.01
	slot = p.slot
	least := cost(slot)
	least -= clearly * math.Abs(least)
	for k := int(p.earliest / t.slot); k <= int(p.latest/t.slot) && k < t.slots; k++ {
		if c := cost(k); c < least-sched.Tolerance*math.Abs(c) {
			slot, least = k, c
		}
	}
	return slot
}

// taken returns which share of the cores at the place of a booking others take in a slot.
func (t *timetable) taken(p *booking, slot int) float64 {
	r := &t.rows[p.row]
	price := &r.price[0] // machines of one place share them
	c := t.cores[price]
	if c == nil {
		c = &cores{used: make([]int64, t.slots)}
		for i := range t.rows {
			if r := &t.rows[i]; &r.price[0] == price {
				c.all += r.node.Capacity.MilliCPU
				for k := range c.used {
					c.used[k] += r.used[k].MilliCPU
				}
			}
		}
		t.cores[price] = c
	}
	used := c.used[slot]
	if end, _, _ := t.ends(t.start(p, p.slot), t.runtime(p, r)); p.slot <= slot && slot < end {
		used -= p.job.Request.MilliCPU
	}
	return float64(used) / float64(c.all)
}

// cores are those of machines at one place, in thousandths.
type cores struct {
	used []int64 // by slot
	all  int64
}

// total is what all that is in a timetable costs, slot by slot.
func (t *timetable) total() (cost float64) {
	for i := range t.rows {
		r := &t.rows[i]
		for k := range t.slots {
			cost += float64(r.watts(r.load[k], r.jobs[k])) * r.price[k]
			if r.wakes(k) {
				cost += r.wake * r.price[k]
			}
		}
	}
	return cost
}
