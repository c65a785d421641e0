package strategy

import (
	"cmp"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sliceutil"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// The parameters of the start rule "guarded" were selected on the tuning half of hack/field, see
// docs/decisions/0051-guarded-plans.md.
const (
	// fullSwing is the [sched.Outlook.Swing] from which prices are considered in full. Below it, they are
	// considered in part, and not at all up to [sched.IgnoredSwing].
	fullSwing = 0.5

	// A job with less slack than this multiple of recent shortages is only held while the free capacity would be
	// sufficient for this number of such jobs, in addition to the other jobs of the queue.
	shortageSlack = 6
	spareCopies   = 3

	// A planned start precedes the latest start by this time and the longest boot time of a machine, but at most by
	// this fraction of the allowed delay.
	startMargin      = 10 * time.Minute
	startMarginShare = 4
)

// guard restricts when jobs may start: ahead of their latest start, and immediately if capacity that is free now may
// not be available later.
func (b *batch) guard(bookings []booking) {
	var boot time.Duration
	for i := range b.nodes {
		if p := b.nodes[i].Profile; p != nil && p.Sleeps() {
			boot = max(boot, p.BootTime())
		}
	}
	scarce := false
	for k := range bookings {
		p := &bookings[k]
		if p.waits() == 0 {
			continue
		}
		allowed := b.snapshot.Now.Add(p.latest).Sub(timeutil.Earlier(p.job.Submitted, b.snapshot.Now))
		p.latest = max(p.earliest, p.latest-min(startMargin+boot, allowed/startMarginShare))
		scarce = scarce || p.atRisk()
	}
	if scarce {
		b.startScarce(bookings)
	}
}

// atRisk reports whether the slack of a booking is short relative to recent shortages.
func (p *booking) atRisk() bool {
	return p.waits() == 1 && p.latest-p.earliest < shortageSlack*p.job.Shortage
}

// startScarce starts the bookings at risk if too little capacity is free for them.
func (b *batch) startScarce(bookings []booking) {
	free := sliceutil.Map(b.snapshot.Nodes, (*sched.Node).Room)
	order := sliceutil.Order(len(bookings), func(x, y int) int {
		p, q := &bookings[x], &bookings[y]
		return cmp.Or(p.waits()-q.waits(),
			cmp.Compare(q.job.Request.MilliCPU, p.job.Request.MilliCPU), p.job.Submitted.Compare(q.job.Submitted),
			cmp.Compare(p.job.ID, q.job.ID))
	})
	for _, k := range order {
		if b.stopped() {
			return
		}
		p := &bookings[k]
		copies, at := int64(0), -1
		for i := range free {
			n := &b.nodes[i]
			if c := p.job.Request.CountIn(free[i]); c > 0 && p.job.MayRunAt(n.Site) && p.job.Selects(n) {
				copies += c
				if at < 0 || free[i].MilliCPU < free[at].MilliCPU {
					at = i
				}
			}
		}
		if copies < spareCopies && p.atRisk() {
			p.latest, p.why = p.earliest, sched.ScarceCapacity
		}
		if at >= 0 {
			free[at] = free[at].Sub(p.job.Request)
		}
	}
}

// reserve reserves capacity for one further job with the mean request of the running jobs, as long as the machine is
// awake because of them, but at most for half of the timetable. The machine is the one with the least free capacity
// that is sufficient. Without the reserve, held jobs fill all machines that are awake, and jobs that must start
// immediately have to wait for a boot.
func (t *timetable) reserve() {
	var mean sched.Resources
	jobs := int64(0)
	for i := range t.rows {
		if r := &t.rows[i]; r.jobs[0] > 0 {
			mean, jobs = mean.Add(r.used[0]), jobs+int64(r.node.Jobs)
		}
	}
	if jobs == 0 {
		return
	}
	mean = sched.Resources{
		MilliCPU: mean.MilliCPU / jobs, Memory: mean.Memory / jobs, GPU: mean.GPU / jobs,
		MilliGPU: mean.MilliGPU / jobs,
	}
	var at *row
	for i := range t.rows {
		r := &t.rows[i]
		if r.jobs[0] > 0 && mean.Within(r.node.Capacity.Sub(r.used[0])) &&
			(at == nil || r.node.Capacity.Sub(r.used[0]).MilliCPU < at.node.Capacity.Sub(at.used[0]).MilliCPU) {
			at = r
		}
	}
	if at == nil {
		return
	}
	for k := 0; k < t.slots/2 && at.jobs[k] > 0; k++ {
		if with := at.used[k].Add(mean); with.Within(at.node.Capacity) {
			at.used[k] = with
		}
	}
}

// countTails doubles the energy of boots, because a machine stays awake after its last job until it has drawn as much
// energy as a boot, see package sleep.
func (t *timetable) countTails() {
	for i := range t.rows {
		if r := &t.rows[i]; r.node.Profile.BootSeconds > 0 {
			r.wake *= 2
		}
	}
}

// damp scales the deviations of the prices of each site from their mean by a factor that depends on the swing of the
// next day. Sites without known signals have the factor of the first site with known signals. It reports whether all
// factors are 0.
func (t *timetable) damp() (flat bool) {
	w := cmp.Or(t.s.Policy.Weights, sched.CarbonAlone)
	known := t.s.Known(&sched.Job{}, w.CountCarbon(), w.CountPrice())
	if len(known) == 0 {
		return true
	}
	flat = true
	done := map[*float64]bool{}
	for i := range t.rows {
		prices, site := t.rows[i].price, t.rows[i].node.Site
		if done[&prices[0]] {
			continue
		}
		done[&prices[0]] = true
		if !slices.Contains(known, site) {
			site = known[0]
		}
		o := sched.NewOutlook(site, w, t.s.Now)
		factor := min(max((o.Swing()-sched.IgnoredSwing)/(fullSwing-sched.IgnoredSwing), 0), 1)
		mean := 0.0
		for _, v := range prices {
			mean += v / float64(len(prices))
		}
		for k, v := range prices {
			prices[k] = mean + factor*(v-mean)
		}
		flat = flat && factor == 0
	}
	return flat
}
