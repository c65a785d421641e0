package strategy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// together reports whether g plans all jobs of a snapshot jointly. Without nodes there is no capacity to plan.
func (g *Greedy) together(s *sched.Snapshot) bool { return g.startRule.Together && len(s.Nodes) > 0 }

// planTogether implements the start rule "plan". It chooses starts and machines for all jobs of the queue jointly,
// so that they share the cleaner hours while there is capacity on worthwhile machines. Jobs are inserted one by one
// where they add the least cost. Then groups of neighboring jobs are repeatedly removed and inserted in a different
// order (ruin and recreate, Schrimpf et al. 2000), which empties machines with a low utilisation. Jobs that start
// later are held. Jobs that start now are placed by the placement of the strategy, so that they run on the machine
// that the same placement selects in a cluster.
//
// The start rule "guarded" only holds jobs if this is expected to pay off and not to make them late. The less the
// prices vary within a day, the less they are considered, because the predicted saving then hardly exceeds the errors
// of the prediction. Jobs start ahead of their latest start, and immediately if capacity may be short later. Held jobs
// leave capacity for one further job.
//
// The start rule "capacity" ignores the signals and delays jobs for a few minutes at most, for capacity on efficient
// machines that are awake.
func (b *batch) planTogether(rule *sched.StartRule) {
	bookings := b.bookings(rule, farthest)
	if len(bookings) == 0 {
		return
	}
	if rule.Guarded {
		b.guard(bookings)
	}
	sites := b.snapshot.Sites
	if rule.Longest > 0 {
		b.snapshot.Sites = nil // without signals, only energy is counted
	}
	t := b.timetable(bookings, minSlots, sched.Day)
	b.snapshot.Sites, t.blind = sites, rule.Longest > 0
	if rule.Guarded && !t.blind && t.damp() {
		for k := range bookings {
			bookings[k].why = cmp.Or(bookings[k].why, sched.FlatSignal)
		}
	}
	t.expectOthers()
	if rule.Guarded {
		t.countTails()
		t.reserve()
	}
	t.restore(bookings)
	if b.shares() {
		t.shareOut(bookings, b.stopped)
	} else {
		b.bookAll(t, bookings)
	}
	b.open = b.open[:0]
	b.snapshot.Queue = slices.Clone(b.snapshot.Queue) // elastic jobs that start on more replicas are modified
	savings := sliceutil.Map(sliceutil.Refs(bookings), func(p *booking) sched.Reason { return b.worth(t, p) })
	var running []*booking
	for k := range bookings {
		p := &bookings[k]
		switch held := b.adopt(t, p, savings[k]); {
		case held:
		case p.job.Running:
			running = append(running, p)
		default:
			b.open = append(b.open, p.index)
			b.snapshot.Queue[p.index] = p.job.Placed(b.plan[p.index].Replicas)
		}
	}
	b.goOn(running)
}

// bookAll inserts the bookings one by one, and then improves the plan for a limited number of rounds.
func (b *batch) bookAll(t *timetable, bookings []booking) {
	t.insertAll(bookings, b.stopped)
	r := newRemaker(t, bookings, b.snapshot.Policy.Seed)
	rounds := min(planRounds, maxRemade/len(bookings))
	if slices.ContainsFunc(bookings, func(p booking) bool { return p.spread }) {
		rounds /= 10 // a round takes longer for jobs in pieces
	}
	for range rounds {
		if b.stopped() {
			break
		}
		r.remake(0)
	}
}

// PlanAhead plans like the start rule "plan", including jobs that are submitted in the future, and improves the
// plan until stop returns 1, the fraction of the time that has elapsed. It is used for offline comparisons with a
// scenario that is fully known in advance.
func PlanAhead(s *sched.Snapshot, seed uint64, stop func() float64) sched.Plan {
	b := newBatch(s, nil, mincost.NeverStop)
	for i := range s.Queue {
		b.plan[i] = sched.Decision{Job: s.Queue[i].ID, Window: s.Queue[i].Window(s.Queue[i].Submitted)}
		b.open = append(b.open, i)
	}
	bookings := b.bookings(&sched.StartRule{}, sched.MaxDuration)
	if len(bookings) == 0 {
		return b.plan
	}
	t := b.timetable(bookings, finerSlots, sched.MaxDuration)
	t.countAlone(0)
	t.insertAll(bookings, mincost.NeverStop)
	r := newRemaker(t, bookings, seed)
	const warm = 0.5 // initially accepted cost increase of a round, relative to the mean cost of a job
	t.countAlone(1)
	best, least := slices.Clone(bookings), t.total()
	hot := warm * least / float64(len(bookings))
	keep := func() {
		if all := t.total(); all < least { // rounds do not add up to the total because of partial slots
			least = all
			copy(best, bookings)
		}
	}
	const seldom = 10 // in rounds, because computing the total takes longer than a round
	round := 1
	for spent := stop(); spent < 1; spent = stop() {
		if r.remake(hot * (1 - spent) * (1 - spent)); round%seldom == 0 {
			keep()
		}
		round++
	}
	keep()
	for k := range best {
		p := &best[k]
		if p.row < 0 {
			continue
		}
		at := t.origin.Add(t.start(p, p.slot))
		d := &b.plan[p.index]
		n := t.rows[p.row].node
		d.Node, d.Window = n.Name, sched.Window{Start: at, End: at.Add(n.Runtime(p.job))}
	}
	return b.plan
}

// farthest is the maximum time until a planned start. Few forecasts cover more.
const farthest = 4 * sched.Day

// bookings returns the open jobs as bookings that start within the given time. Interruptible jobs may run in pieces
// if the rule may suspend them.
func (b *batch) bookings(rule *sched.StartRule, ahead time.Duration) (bookings []booking) {
	now := b.snapshot.Now
	for _, i := range b.open {
		j := b.job(i)
		earliest := timeutil.Later(now, j.Submitted)
		latest := earliest
		_, why, known := b.snapshot.Outlook(j)
		spread := j.Interruptible && rule.Interrupts
		if spread && j.SpeedRelied() > 1 { // regardless of whether it is late on its own request
			_, known = b.snapshot.Forecasts(j)
		}
		switch {
		case rule.Longest > 0 && (known || why == sched.NoFreshSignal):
			latest = timeutil.Earlier(b.snapshot.Policy.LatestStart(j), j.Submitted.Add(rule.Longest))
			latest = timeutil.Later(earliest, latest)
		case known && !(j.Limits.NoCarbon && b.snapshot.Policy.Weights.Price == 0):
			latest = timeutil.Later(earliest, b.snapshot.Policy.LatestStart(j))
			if spread {
				latest = timeutil.Later(earliest, b.snapshot.LatestInPieces(j))
			}
		case why == sched.NoFreshSignal:
			b.plan[i].Reason.Kind = why
		}
		bookings = append(bookings, booking{
			job: j, index: i, earliest: earliest.Sub(now), latest: min(latest.Sub(now), ahead), place: nowhere,
			spread: spread && known,
		})
	}
	return bookings
}

// timetable returns the timetable of the batch's machines. It covers the given number of slots, extended until the
// last job has finished or reached the longest planned run time.
func (b *batch) timetable(bookings []booking, slots int, longest time.Duration) *timetable {
	span, slowest := time.Duration(0), b.snapshot.Slowest()
	for k := range bookings {
		p := &bookings[k]
		span = max(span, p.latest+time.Duration(min(float64(p.job.Remaining())/slowest, float64(longest))))
	}
	const finer = 4 // at most this many times the slots if the signals change more often
	slot := max(min(slotFor(span, slots), b.finestStep()), slotFor(span, finer*slots))
	slots = int(span/slot) + 3
	t := newTimetable(&b.snapshot, b.nodes, slot, slots+slots/2) // additional slots for jobs that do not fit in time
	t.longest = longest
	for k := range bookings {
		bookings[k].earliest += t.offset()
		bookings[k].latest += t.offset()
	}
	return t
}

// finestStep returns the shortest step of all signals, at least shortest. Longer slots would hide their changes.
func (b *batch) finestStep() time.Duration {
	const shortest = 5 * time.Minute
	finest := time.Hour
	for _, site := range b.snapshot.Sites {
		for _, series := range []*grid.Series{site.Carbon.Series, site.Price.Series} {
			if series != nil {
				finest = min(finest, series.Step())
			}
		}
	}
	return max(finest, shortest)
}

// insertAll inserts all bookings that have no place yet: first the jobs that cannot wait in order of time, then the
// largest jobs. When the time is up, the remaining bookings are not inserted.
func (t *timetable) insertAll(bookings []booking, stopped func() bool) {
	order := sliceutil.Order(len(bookings), func(x, y int) int { return urgent(&bookings[x], &bookings[y]) })
	for _, k := range order {
		if bookings[k].row < 0 && !stopped() {
			t.insert(&bookings[k], nil)
		}
	}
}

// restore places bookings as in the last plan if there is still capacity.
func (t *timetable) restore(bookings []booking) {
	rows := sliceutil.Places(t.rows, func(r *row) string { return r.node.Name })
	for k := range bookings {
		p := &bookings[k]
		row, known := rows[p.job.Place.Node]
		if !known || p.spread || !t.rows[row].offers(p.job) {
			continue
		}
		// Round to the nearest slot. If starts were always rounded down, they would move forward with every plan.
		start := max(p.job.Place.Start.Sub(t.origin), p.earliest)
		at := place{row: row, slot: int(min(start+t.slot/2, p.latest) / t.slot)}
		if at.slot >= t.slots || t.start(p, at.slot) > p.latest {
			continue
		}
		if at.cost = t.costs(p, at); !math.IsInf(at.cost, 1) {
			// A start moves if the slots have become longer. Its saving is then computed again.
			p.place, p.kept = at, t.start(p, at.slot) == start
			t.put(p, 1)
		}
	}
}

// planRounds is the number of rounds in which parts of a plan are replanned. It is lower for many jobs, because
// each round takes longer and changes less.
const (
	planRounds = 100
	maxRemade  = 100_000
)

// maxKnown is the maximum number of known places.
const maxKnown = 1 << 14

// The minimum number of slots in a plan determines their length.
const (
	minSlots   = 72
	finerSlots = 1000
)

// slotFor returns the maximum length of slots so that at least the given number of slots fit into the span.
func slotFor(span time.Duration, slots int) time.Duration {
	length := time.Second
	for _, unit := range [...]time.Duration{time.Second, time.Minute} {
		for _, longer := range [...]time.Duration{1, 2, 5, 10, 15, 20, 30, 60} {
			if span >= longer*unit*time.Duration(slots) {
				length = longer * unit
			}
		}
	}
	return length
}

// urgent compares two bookings by the order in which they are inserted.
func urgent(x, y *booking) int {
	if c := x.waits() - y.waits(); c != 0 {
		return c
	}
	if x.waits() == 0 {
		return cmp.Or(cmp.Compare(x.earliest, y.earliest), x.job.Submitted.Compare(y.job.Submitted))
	}
	return cmp.Or(cmp.Compare(y.work(), x.work()), x.job.Submitted.Compare(y.job.Submitted))
}

// waits returns 1 if the start of a booking may be delayed, otherwise 0.
func (p *booking) waits() int {
	if p.latest > p.earliest {
		return 1
	}
	return 0
}

// worth moves a booking to an immediate start if its later start does not save as much as the policy requires, and
// returns the saving. A job that cannot run now has no choice.
func (b *batch) worth(t *timetable, p *booking) (saving sched.Reason) {
	switch {
	case p.row < 0 || t.start(p, p.slot) == p.earliest || p.job.Done > 0 && !p.job.Running: // the job is suspended
		return sched.Reason{}
	case p.spread && t.behind(p): // an immediate start on its own request is no longer possible
		return sched.Reason{}
	case p.kept: // checked in an earlier plan
		return sched.Reason{Saving: p.job.Place.Saving, Carbon: p.job.Place.Carbon}
	}
	later := *p
	t.remove(p)
	atOnce := later
	atOnce.latest, atOnce.place, atOnce.spread = p.earliest, nowhere, false
	if t.find(&atOnce, nil, false); atOnce.row < 0 { // no awake machine has capacity
		if t.find(&atOnce, nil, true); atOnce.row >= 0 && atOnce.slot < later.slot {
			atOnce.latest = t.start(&atOnce, atOnce.slot)
			atOnce.cost = t.costs(&atOnce, atOnce.place)
		} else {
			atOnce.row = -1
		}
	}
	if atOnce.row >= 0 {
		if saving = b.saving(t, &atOnce, &later); saving == (sched.Reason{}) {
			later.place = atOnce.place
		}
	}
	p.place = later.place
	t.put(p, 1)
	return saving
}

// saving returns the saving of a later place of a booking, or the zero value if it is less than the policy
// requires.
func (b *batch) saving(t *timetable, atOnce, later *booking) (saving sched.Reason) {
	policy, w := &b.snapshot.Policy, b.snapshot.Weights(later.job)
	saved := atOnce.cost - later.cost
	least := max(policy.MinSaving, sched.Tolerance)
	least += policy.MinSavingPerHour * (t.start(later, later.slot) - later.earliest).Hours()
	if w.Price == 0 && w.Carbon > 0 && !t.blind {
		saving.Carbon = energy.Grams(saved / w.Carbon)
	}
	if saved <= least*math.Abs(atOnce.cost) ||
		w.Price == 0 && saving.Carbon < policy.MinSavingGrams && !t.blind {
		return sched.Reason{}
	}
	saving.Saving = saved / max(math.Abs(atOnce.cost), math.SmallestNonzeroFloat64)
	return saving
}

// adopt holds a job with a later start in the timetable, and reports whether it does so. Jobs without slack start
// as soon as there is capacity. There is no opinion on jobs that exceed the capacity of all machines.
func (b *batch) adopt(t *timetable, p *booking, saving sched.Reason) (held bool) {
	d := &b.plan[p.index]
	if p.row < 0 {
		d.Reason = sched.Reason{}
		return false
	}
	start := t.start(p, p.slot)
	if len(p.runs) > 0 {
		start = max(start, p.runs[0].Start.Sub(t.origin))
	}
	if start = min(start, p.latest); start <= t.offset() {
		if d.Reason.Kind == sched.Cheapest && (p.latest > p.earliest || p.why == sched.ScarceCapacity) {
			d.Reason.Kind = cmp.Or(p.why, sched.Planned)
		}
		d.Replicas, d.Again = t.present(p)
		return false
	}
	at, n := t.origin.Add(start), &t.rows[p.row].node
	d.Window, d.Node, d.Again = sched.Window{Start: at, End: at.Add(n.Runtime(p.job))}, n.Name, at
	d.Reason = saving
	d.Reason.Kind, d.Reason.Until, d.Reason.Latest = sched.PlannedLater, at, t.origin.Add(p.latest)
	if !p.spread { // without the margin of the rule
		d.Reason.Latest = timeutil.Later(at, b.snapshot.Policy.LatestStart(p.job))
	}
	if p.job.Running {
		d.Reason.Kind = sched.Suspended
		return true
	}
	if alone := t.alone(p); !p.spread && alone != p.slot {
		d.Reason.Alone, d.Reason.Taken = t.origin.Add(t.start(p, alone)), t.taken(p, alone)
	}
	return true
}

// work returns the expected remaining work in millicore-seconds.
func (p *booking) work() float64 {
	return float64(p.job.Request.MilliCPU) * p.job.Remaining().Seconds()
}

// remaker removes bookings from a timetable and inserts them again.
type remaker struct {
	t        *timetable
	bookings []booking
	draws    draws
	out      []int
	was      []place // previous places by booking
	skipped  []bool  // rows skipped in a round
}

func newRemaker(t *timetable, bookings []booking, seed uint64) *remaker {
	t.known = make([]known, min(maxKnown, 4*len(bookings)*len(t.rows)))
	return &remaker{
		t: t, bookings: bookings, draws: draws(seed), was: make([]place, len(bookings)),
		skipped: make([]bool, len(t.rows)),
	}
}

// draws is a pseudorandom number generator that only depends on its seed (SplitMix64, Steele et al. 2014).
type draws uint64

func (d *draws) next() uint64 {
	*d += 0x9e3779b97f4a7c15
	z := uint64(*d)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// hash returns a hash of numbers.
func hash(of ...int) (sum draws) {
	for _, v := range of {
		sum += draws(v)
		sum = draws(sum.next())
	}
	return sum
}

func (d *draws) below(n int) int { return int(d.next() % uint64(n)) }

func (d *draws) share() float64 { return float64(d.next()>>11) / (1 << 53) }

// remake removes some bookings, inserts them in a different order, and keeps the result if it costs less. A result
// that costs up to about the given amount more is kept at random.
func (r *remaker) remake(more float64) {
	r.choose()
	before, after := 0.0, 0.0
	for _, k := range r.out {
		p := &r.bookings[k]
		r.was[k] = p.place
		r.t.remove(p)
		before += r.t.costs(p, r.was[k])
	}
	r.shuffle()
	const blinks = 16 // one of this many rows is skipped
	for k := range r.skipped {
		r.skipped[k] = r.draws.below(blinks) == 0
	}
	for _, k := range r.out {
		p := &r.bookings[k]
		r.t.insert(p, r.skipped)
		after += p.cost
	}
	if after < before-sched.Tolerance*math.Abs(before)-more*math.Log(1-r.draws.share()) {
		for _, k := range r.out {
			r.bookings[k].kept = false
		}
		return
	}
	for _, k := range r.out {
		r.t.remove(&r.bookings[k])
	}
	for _, k := range r.out {
		p := &r.bookings[k]
		if p.place = r.was[k]; p.row >= 0 {
			r.t.put(p, 1)
		}
	}
}

// choose selects the bookings of a round. They are near a random booking on its machine, or at its time on any
// machine.
func (r *remaker) choose() {
	const most, near = 12, 24
	r.out = append(r.out[:0], r.draws.below(len(r.bookings)))
	first := &r.bookings[r.out[0]]
	if first.row < 0 {
		return
	}
	alone, n := r.draws.below(2) == 0, 1+r.draws.below(most)
	span := 1 + r.draws.below(near)
	from := r.draws.below(len(r.bookings))
	for i := range r.bookings {
		k := (from + i) % len(r.bookings)
		p := &r.bookings[k]
		if p == first || p.row < 0 || alone && p.row != first.row || max(p.slot-first.slot, first.slot-p.slot) > span {
			continue
		}
		if r.out = append(r.out, k); len(r.out) > n {
			return
		}
	}
}

// shuffle orders the bookings of a round by work, by latest start, or at random.
func (r *remaker) shuffle() {
	for a := len(r.out) - 1; a > 0; a-- {
		b := r.draws.below(a + 1)
		r.out[a], r.out[b] = r.out[b], r.out[a]
	}
	switch r.draws.below(3) {
	case 0:
		slices.SortStableFunc(r.out, func(a, b int) int {
			return cmp.Compare(r.bookings[b].work(), r.bookings[a].work())
		})
	case 1:
		slices.SortStableFunc(r.out, func(a, b int) int {
			return cmp.Compare(r.bookings[a].latest, r.bookings[b].latest)
		})
	}
}

// maxAlone is the maximum probability that only planned jobs keep a machine awake, because further jobs are
// expected (docs/decisions/0040-plans.md).
const maxAlone = 0.5

// expectOthers assumes that the first machine of each kind by name is kept awake by other jobs, and the following
// ones with decreasing probability. Consecutive plans then concentrate jobs on the same machines.
func (t *timetable) expectOthers() {
	of := map[*energy.Profile][]int{}
	for i := range t.rows {
		of[t.rows[i].node.Profile] = append(of[t.rows[i].node.Profile], i)
	}
	for _, rows := range of {
		for rank, i := range rows {
			t.rows[i].setAlone(maxAlone * float64(rank) / float64(max(len(rows)-1, 1)))
		}
	}
}

// countAlone sets the probability that only the jobs of the timetable keep the machines awake.
func (t *timetable) countAlone(sure float64) {
	for i := range t.rows {
		t.rows[i].setAlone(sure)
	}
}

func (r *row) setAlone(sure float64) {
	r.alone = sure
	for k := range r.draws {
		r.draws[k] = unknownWatts
	}
}
