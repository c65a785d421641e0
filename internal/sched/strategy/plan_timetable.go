package strategy

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// timetable contains the running and planned jobs of each machine per slot. Cores and memory are reserved for whole
// slots even if a job only runs in part of a slot, unless it is interruptible. Power is computed for the actual
// part of the slot.
type timetable struct {
	s      *sched.Snapshot
	origin time.Time // start of the first slot, aligned like the values of signals
	slot   time.Duration
	slots  int
	blind  bool // only counts energy
	// longest limits the planned run time. Longer jobs are planned with this run time, because the cost beyond it
	// hardly depends on the start.
	longest time.Duration
	rows    []row
	// The following fields are used by the search for one job on one row. Element k of sums is the cost of the
	// slots before k, and element k of noRoom is the number of these slots without capacity.
	sums     []float64
	slotCost []float64 // cost of the job in slot k
	noRoom   []int32
	bootCost []float64           // cost of the machine wake-ups in the slots before k
	tried    []int32             // number of tried rows per kind
	offer    sched.Allotment     // for the search for pieces of an interruptible job
	cores    map[*float64]*cores // by shared prices, see taken
	never    float64             // much higher than the cost of any place that is in time
	known    []known             // by the remainder of their key
}

// row contains the slots of one machine.
type row struct {
	node    sched.Node        // without jobs
	used    []sched.Resources // used capacity
	load    []sched.Resources // mean load, which determines the power
	jobs    []int32           // number of jobs in the slot; the machine is awake for the whole slot if positive
	changed []bool            // whether used, load or jobs differ from the previous slot
	price   []float64         // cost per watt for the whole slot, according to the policy's weights; shared
	free    int               // first slot after the boot
	up      bool              // whether the machine is awake before its first slot
	like    int               // first row that is identical while neither row has jobs
	idle    energy.Watts      // awake and without jobs
	draws   []energy.Watts    // power above sleep per slot; NaN if not yet computed
	wake    float64           // energy of one boot, as power over one slot
	touched int               // number of running and planned jobs
	alone   float64           // probability that only these jobs keep the machine awake, 0 to 1
	state   draws             // hash of the capacity in use
}

// booking is a job in a timetable. Times are relative to the start of the first slot.
type booking struct {
	job              *sched.Job
	index            int // position in the queue
	earliest, latest time.Duration
	kept             bool             // unchanged from the last plan
	spread           bool             // may be suspended and run in pieces
	why              sched.ReasonKind // why the job is not delayed for its signals; 0 if they are considered
	place
}

// place is the machine and time of a planned run.
type place struct {
	row  int // -1 if not placed
	slot int // slot of the start
	cost float64
	runs []sched.Stretch // pieces of an interruptible job; empty if it runs without interruption
}

var nowhere = place{row: -1, cost: math.Inf(1)}

// offset returns the elapsed part of the first slot.
func (t *timetable) offset() time.Duration { return t.s.Now.Sub(t.origin) }

// start returns the start of a booking in the given slot: the start of the slot, or the earliest start of the job.
func (t *timetable) start(p *booking, slot int) time.Duration {
	return max(p.earliest, time.Duration(slot)*t.slot)
}

// runtime returns the planned run time of a booking on a row.
func (t *timetable) runtime(p *booking, r *row) time.Duration {
	return min(max(r.node.Runtime(p.job), 1), t.longest)
}

// ends returns the slot after the last slot of a run, and the fractions of its first and last slot in which it
// runs. They are equal if the run is within one slot.
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

// watts returns the power of a machine above sleep for the given load and number of jobs. Idle power is counted in
// full only to the extent that other jobs do not keep the machine awake. For the rest, each job is charged for its
// fraction of the machine.
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

// unknownWatts marks a power that has not been computed yet.
var unknownWatts = energy.Watts(math.NaN())

// more returns the increase in the power of a machine in a slot for one additional job.
func (r *row) more(k int, load sched.Resources) energy.Watts {
	if math.IsNaN(float64(r.draws[k])) {
		r.draws[k] = r.watts(r.load[k], r.jobs[k])
	}
	return r.watts(r.load[k].Add(load), r.jobs[k]+1) - r.draws[k]
}

// part returns the cost of running a job for a fraction of a slot.
func (r *row) part(k int, request *sched.Resources, share float64) float64 {
	return float64(r.more(k, *request)) * share * r.price[k]
}

// best returns the cheapest place of a booking on one row, and the earliest among equal ones. If late is true,
// starts after the latest start are also permitted and the earliest possible place is returned.
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
	whole, _, last := t.ends(0, length)
	if !t.sum(r, p, whole, first, min(past, t.slots)) {
		return nowhere
	}
	best := place{row: -1, cost: math.Inf(1)}
	sums, slotCost, noRoom := t.sums, t.slotCost, t.noRoom
	for k := first; k <= final; k++ {
		var c float64
		switch end := k + whole; {
		case k == first, whole == 1, late:
			c = t.cost(p, r, k, length)
		case end > t.slots || noRoom[end] != noRoom[k]:
			continue
		default: // the job starts with the slot
			c = sums[end-1] - sums[k] + slotCost[end-1]*last + t.woken(r, k, end)
		}
		if c < best.cost-sched.Tolerance*math.Abs(c) {
			if best.row, best.slot, best.cost = at, k, c; late {
				break
			}
		}
	}
	return best
}

// sum fills sums, slotCost, noRoom and bootCost for a job between two slots. It reports whether there is capacity for
// the given number of consecutive slots.
func (t *timetable) sum(r *row, p *booking, whole, from, to int) (room bool) {
	t.sums[from], t.noRoom[from], t.bootCost[from] = 0, 0, 0
	noRoom, changed := t.noRoom[from+1:to+1], r.changed[from:to]
	full, free, fits := int32(0), 0, false // slots without capacity, and consecutive ones with capacity
	for k := range changed {
		if k == 0 || changed[k] {
			fits = p.job.Request.Within(r.node.Capacity.Sub(r.used[from+k]))
		}
		if free++; !fits {
			full, free = full+1, 0
		}
		noRoom[k] = full
		room = room || free >= whole
	}
	if !room {
		return false
	}
	sums, bootCost := t.sums[from+1:to+1], t.bootCost[from+1:to+1]
	slotCost, price := t.slotCost[from:to], r.price[from:to]
	sum, boots, watts := 0., 0., 0.
	for k := range changed {
		if k == 0 || changed[k] {
			watts = float64(r.more(from+k, p.job.Request))
			if r.wakes(from + k) {
				boots += r.wake * price[k]
			}
		}
		c := watts * price[k]
		sum += c
		sums[k], slotCost[k], bootCost[k] = sum, c, boots
	}
	return true
}

// rests reports whether no job runs on the machine just before a slot, so that it is asleep.
func (r *row) rests(k int) bool { return k > 0 && r.jobs[k-1] == 0 || k == 0 && !r.up }

// wakes reports whether the machine has to wake for a slot.
func (r *row) wakes(k int) bool { return r.jobs[k] > 0 && r.rests(k) }

// cost returns the additional cost of a booking that starts in the given slot, or infinity if there is no capacity.
// It requires a preceding call of sum.
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
		c = t.sums[end-1] - t.sums[k] + t.slotCost[end-1]*last
	default:
		c = r.part(k, &p.job.Request, first) + t.sums[end-1] - t.sums[k+1] + r.part(end-1, &p.job.Request, last)
	}
	if late := start - p.latest; late > 0 {
		c += t.never * (1 + float64(late)/float64(t.slot)) / float64(t.slots)
	}
	return c + t.woken(r, k, end)
}

// woken returns the additional cost of waking the machine if it runs from slot k to end. Wake-ups within this time
// and right after it are no longer required, and a wake-up is added if the machine is asleep before.
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

// put adds a booking to the timetable, or removes it if by is -1.
func (t *timetable) put(p *booking, by int) {
	r := &t.rows[p.row]
	if p.runs == nil {
		t.occupy(r, p.job.Request, t.start(p, p.slot), t.runtime(p, r), by, false)
	}
	for _, run := range p.runs {
		t.occupy(r, p.job.On(run.Replicas).Request, run.Start.Sub(t.origin), run.End.Sub(run.Start), by, true)
	}
}

// occupy reserves capacity on a row, or frees it if by is negative. Interruptible jobs take turns within a slot and
// only use their fraction of the capacity in later slots. In the first slot all jobs run now.
func (t *timetable) occupy(r *row, request sched.Resources, start, length time.Duration, by int, turns bool) {
	end, first, last := t.ends(start, length)
	from := int(start / t.slot)
	r.touched += by
	kind := 0
	if turns {
		kind = 1
	}
	size := hash(int(request.MilliCPU), int(request.Memory), int(request.GPU+request.MilliGPU<<16))
	r.state += draws(by) * hash(int(start), int(length), int(size), kind)
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
	for _, k := range [...]int{from, from + 1, end - 1, end} { // other slots have changed equally
		if k == 0 || k >= t.slots {
			continue
		}
		r.changed[k] = r.used[k] != r.used[k-1] || r.load[k] != r.load[k-1] || r.jobs[k] != r.jobs[k-1]
	}
}

// insert adds a booking at its cheapest place: no later than its latest start if there is capacity, otherwise as
// early as possible. Some rows may be skipped.
func (t *timetable) insert(p *booking, skipped []bool) {
	for _, late := range [2]bool{false, true} {
		if t.find(p, skipped, late); p.row >= 0 {
			t.put(p, 1)
			return
		}
	}
	p.cost = t.never
}

// find sets the cheapest place of a booking. It considers up to maxAlike machines with capacity of each kind.
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
		switch {
		case p.spread && !late:
			found = t.pieces(p, at)
		case skipped == nil || t.known == nil:
			found = t.best(p, at, late)
		default:
			found = t.cheapest(p, at, late)
		}
		if found.row < 0 {
			continue
		}
		t.tried[kind]++
		digits := sched.Tolerance * math.Abs(found.cost)
		sooner := found.slot < p.slot // decides between equal costs
		if found.cost < p.cost-digits || sooner && found.cost <= p.cost+digits {
			p.place = found
		}
	}
}

// A known place is the result of best for a booking on a row in a certain state.
type known struct {
	key       draws
	row, slot int32
	cost      float64
}

// cheapest returns the same place as best, from the known places if possible.
func (t *timetable) cheapest(p *booking, at int, late bool) place {
	which := at
	if late {
		which = -1 - at
	}
	key := hash(int(t.rows[at].state), p.index, which)
	k := &t.known[key%draws(len(t.known))]
	if k.key != key {
		found := t.best(p, at, late)
		*k = known{key, int32(found.row), int32(found.slot), found.cost}
	}
	return place{row: int(k.row), slot: int(k.slot), cost: k.cost}
}

// maxAlike is the number of machines of a kind that are considered for a job. More machines hardly improve the
// result.
const maxAlike = 8

// repeats reports whether an identical row precedes this one.
func (t *timetable) repeats(at int) bool {
	r := &t.rows[at]
	return r.touched == 0 && r.like != at && t.rows[r.like].touched == 0
}

// offers reports whether a job may run on a row.
func (r *row) offers(j *sched.Job) bool {
	if j.Running { // continues on its node
		return j.Place.Node == r.node.Name
	}
	return j.Request.Within(r.node.Capacity) && j.MayRunAt(r.node.Site) && j.Selects(&r.node)
}

// costs returns the additional cost of a booking at a place from which it has been removed.
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
	if whole, _, _ := t.ends(0, length); !t.sum(r, p, whole, at.slot, min(end, t.slots)) {
		return math.Inf(1)
	}
	return t.cost(p, r, at.slot, length)
}

// remove removes a booking from the timetable.
func (t *timetable) remove(p *booking) {
	if p.row >= 0 {
		t.put(p, -1)
	}
	p.row = -1
}

// alone returns the slot in which a booking would start on its row if only the price of power mattered. It returns
// the planned slot if no other slot is at least 1 % cheaper.
func (t *timetable) alone(p *booking) (slot int) {
	r := &t.rows[p.row]
	length := t.runtime(p, r)
	whole := t.sums // integral of the price from the first slot on
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

// taken returns the fraction of the cores at the location of a booking that other jobs use in a slot.
func (t *timetable) taken(p *booking, slot int) float64 {
	r := &t.rows[p.row]
	price := &r.price[0] // shared by the machines of a location
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

// cores contains the cores of the machines at one location, in millicores.
type cores struct {
	used []int64 // by slot
	all  int64
}

// total returns the total cost of a timetable.
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
