package sched

import (
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// StartNow implements the start rule "now".
func StartNow(s *Snapshot, j *Job) (Window, Reason) {
	return j.Window(s.Now), Reason{Kind: Cheapest}
}

// cheapestWindow implements the start rule "window". It chooses the start between now and the job's latest start
// with the lowest cost over the whole duration of the job, based on the forecasts of all sites. Each hour of
// waiting costs the fraction that the policy requires it to save. The job starts immediately if waiting does not
// save as much as the policy requires. Only signals with a weight are considered.
//
// The cost of a start at one site is piecewise linear in the start time, because signals are piecewise constant. At
// its minimum, the window therefore starts or ends at a step of a signal of this site, or the start is at one of
// its limits. Checking only these starts is exact. Because the site is chosen together with the start, the steps of
// other sites need not be checked.
func cheapestWindow(s *Snapshot, j *Job) (Window, Reason) { return cheapest(s, j, s.Weights(j)) }

// guardedWindow implements the start rule "guarded" for a single job: the start rule "window" unless the signals vary
// too little.
func guardedWindow(s *Snapshot, j *Job) (Window, Reason) {
	if o, _, ok := s.Outlook(j); ok && o.Swing() <= IgnoredSwing {
		return j.Window(s.Now), Reason{Kind: FlatSignal}
	}
	return cheapestWindow(s, j)
}

// forCapacity implements the start rule "capacity" for a single job, which starts immediately.
func forCapacity(s *Snapshot, j *Job) (Window, Reason) {
	why, ok := s.mayWait(j, s.latest(j))
	if ok || why == NoFreshSignal {
		why = NothingToSave
	}
	return j.Window(s.Now), Reason{Kind: why}
}

func cheapest(s *Snapshot, j *Job, weights Weights) (Window, Reason) {
	now := j.Window(s.Now)
	latest := s.Policy.LatestStart(j)
	search := windowSearch{s: s, j: j, weights: weights, power: expectedPower(j)}
	if kind, ok := search.mayHold(now, latest); !ok {
		return now, Reason{Kind: kind}
	}
	costNow, atOnce := search.best(now)
	search.perHour = s.Policy.MinSavingPerHour * math.Abs(atOnce)
	start := search.start(latest, atOnce)
	enough := start.After(s.Now)
	if !enough && search.perHour > 0 {
		search.perHour = 0
		start = search.start(latest, atOnce) // computed to report the saving that was too small
	}
	window := j.Window(start)
	costLater, then := search.best(window)
	reason := Reason{
		Kind: CheaperLater, Until: start, Latest: latest,
		Saving: (atOnce - then) / max(math.Abs(atOnce), math.SmallestNonzeroFloat64),
	}
	if weights.CountCarbon() {
		reason.Carbon = costNow.Carbon - costLater.Carbon
	}
	if weights.CountPrice() {
		reason.Money = costNow.Cost - costLater.Cost
	}
	switch saved := atOnce - then; {
	case saved <= Tolerance*math.Abs(atOnce):
		return now, Reason{Kind: NothingToSave}
	case !enough, saved <= s.Policy.MinSaving*math.Abs(atOnce),
		weights.CountCarbon() && reason.Carbon < s.Policy.MinSavingGrams:
		reason.Kind = NothingToSave
		return now, reason
	}
	return window, reason
}

// BestStart returns the start, at the latest given time or earlier, with the lowest mean of a signal during the
// run, and the first of equal ones. It is the start that "window" chooses for a job that only depends on this
// signal.
func BestStart(signal *grid.Series, from, latest time.Time, length time.Duration) time.Time {
	s := &Snapshot{Now: from, Sites: []*Site{{Carbon: grid.Signal{Series: signal}}}}
	window, _ := cheapest(s, &Job{Submitted: from, Duration: length, AllowedDelay: latest.Sub(from)}, CarbonAlone)
	return window.Start
}

// AllowedDelay returns the allowed delay of the job, limited by the policy.
func (p *Policy) AllowedDelay(j *Job) time.Duration {
	if p.MaxDelay > 0 {
		return min(j.AllowedDelay, p.MaxDelay)
	}
	return j.AllowedDelay
}

// LatestStart returns the latest start of the job, limited by the policy.
func (p *Policy) LatestStart(j *Job) time.Time {
	return j.latestStart(p.AllowedDelay(j))
}

// mayWait reports whether j may start later than now, and if not, the reason why it starts now.
func (s *Snapshot) mayWait(j *Job, latest time.Time) (why ReasonKind, ok bool) {
	switch {
	case j.Released:
		return AlreadyReleased, false
	case j.AllowedDelay <= 0:
		return Cheapest, false
	case !latest.After(s.Now):
		return DelayUsedUp, false
	case len(s.Sites) == 0:
		return NoFreshSignal, false
	}
	return NoOpinion, true
}

// Known returns the sites where j may run and all required signals are available and not too old. A site without
// signals is excluded, because it must not determine the start at the other sites. The job may still be placed
// there.
func (s *Snapshot) Known(j *Job, carbon, price bool) []*Site {
	return sitesThat(s.Sites, func(site *Site) bool {
		return j.MayRunAt(site) && (!carbon || site.Carbon.Fresh(s.Now, s.Policy.MaxSignalAge)) &&
			(!price || site.Price.Fresh(s.Now, s.Policy.MaxSignalAge))
	})
}

// sitesThat returns the sites that satisfy ok. If all sites do, it returns the original slice.
func sitesThat(sites []*Site, ok func(*Site) bool) []*Site {
	lacks := func(site *Site) bool { return !ok(site) }
	if !slices.ContainsFunc(sites, lacks) {
		return sites
	}
	return slices.DeleteFunc(slices.Clone(sites), lacks)
}

// Tolerance is the relative difference below which two costs are considered equal. Integrals of a constant signal
// differ in their last digits, and this must not delay a job.
const Tolerance = 1e-9

// expectedPower is the assumed power before a node is chosen: the expected power of similar jobs if known,
// otherwise the nominal power of the request. The order of windows only depends on cost ratios, so any positive
// value results in the same order, unless waiting time has a weight. In that case the value determines how waiting
// compares with emissions. It also makes the reported savings plausible.
func expectedPower(j *Job) energy.Watts {
	const minCores = 0.1
	if j.HasExpected && ValidPower(j.Expected) {
		return max(j.Expected, nominalWattsPerCore*minCores)
	}
	return nominalWattsPerCore * energy.Watts(max(float64(j.Request.MilliCPU)/1000, minCores))
}

// windowSearch evaluates the windows of one job.
type windowSearch struct {
	s       *Snapshot
	sites   []*Site // sites with sufficient data
	j       *Job
	weights Weights
	power   energy.Watts
	perHour float64 // cost per hour of waiting
}

// mayHold reports whether the job has a choice of starts, and if not, the reason why it runs now.
func (c *windowSearch) mayHold(now Window, latest time.Time) (why ReasonKind, ok bool) {
	if why, ok = c.s.mayWait(c.j, latest); !ok {
		return why, false
	}
	if c.sites = c.s.Known(c.j, c.weights.CountCarbon(), c.weights.CountPrice()); len(c.sites) == 0 {
		return NoFreshSignal, false
	}
	if c.sites = sitesThat(c.sites, func(site *Site) bool { return c.covered(site, now) }); len(c.sites) == 0 {
		return BeyondForecast, false
	}
	return NoOpinion, true
}

// start returns the start with the lowest cost, and the earliest of equal ones.
func (c *windowSearch) start(latest time.Time, atOnce float64) time.Time {
	start, least := c.s.Now, atOnce
	for _, site := range c.sites {
		if c.atBest(site, latest) <= least+Tolerance*math.Abs(least) {
			start, least = c.cheaper(site, latest, start, least)
		}
	}
	return start
}

// atBest returns a lower bound on the cost of all windows at the site, based on the minimum of its signals. With
// many sites, it excludes most of them from the search.
func (c *windowSearch) atBest(site *Site, latest time.Time) float64 {
	w := c.weights
	if w.Carbon < 0 || w.Price < 0 || w.Wait < 0 {
		return math.Inf(-1)
	}
	var lowest float64
	end := latest.Add(c.j.Remaining())
	if w.CountCarbon() {
		least, _ := Bounds(site.Carbon.Series, c.s.Now, end)
		lowest = w.Carbon * least
	}
	if w.CountPrice() {
		least, _ := Bounds(site.Price.Series, c.s.Now, end)
		lowest += w.Price * least
	}
	return lowest * site.pueFor(c.j) * float64(c.power) * c.j.Remaining().Seconds() / energy.JoulesPerKWh
}

// cheaper returns the start and cost of the best window at the site if it is cheaper than the given start, or
// equally cheap and earlier. Otherwise it returns the given start and cost.
func (c *windowSearch) cheaper(site *Site, latest, start time.Time, least float64) (time.Time, float64) {
	length := c.j.Remaining()
	consider := func(t time.Time) {
		if !c.j.opensAt(t) {
			return
		}
		_, cost := c.at(site, Window{t, t.Add(length)})
		cost += c.perHour * t.Sub(c.s.Now).Hours()
		if margin := Tolerance * math.Abs(least); cost < least-margin || cost <= least+margin && t.Before(start) {
			start, least = t, cost
		}
	}
	try := func(signal *grid.Series) {
		for t := range signal.Steps(c.s.Now, latest) {
			consider(t)
		}
		for t := range signal.Steps(c.s.Now.Add(length), latest.Add(length)) {
			consider(t.Add(-length))
		}
	}
	if c.weights.CountCarbon() {
		try(site.Carbon.Series)
	}
	if c.weights.CountPrice() {
		try(site.Price.Series)
	}
	consider(latest)
	for _, w := range c.j.Openings {
		for _, t := range [2]time.Time{w.Start, w.End} {
			if t.After(c.s.Now) && t.Before(latest) {
				consider(t)
			}
		}
	}
	return start, least
}

// best returns the estimate and cost of w at the site where the cost is lowest.
func (c *windowSearch) best(w Window) (e Estimate, least float64) {
	least = math.Inf(1)
	for _, site := range c.sites {
		if here, cost := c.at(site, w); cost < least {
			e, least = here, cost
		}
	}
	return e, least
}

// at returns the estimate and cost of w at a site. The cost is infinite if the forecast does not cover the window.
func (c *windowSearch) at(site *Site, w Window) (Estimate, float64) {
	if !c.covered(site, w) {
		return Estimate{}, math.Inf(1)
	}
	r := site.steadyRates(w, site.pueFor(c.j))
	e := r.Estimate(c.power, 0)
	return e, c.weights.Cost(e, c.j.Submitted, 0)
}

// covered reports whether all signals with a weight cover the whole window.
func (c *windowSearch) covered(site *Site, w Window) bool {
	return (!c.weights.CountCarbon() || site.Carbon.Series.Covers(w.Start, w.End)) &&
		(!c.weights.CountPrice() || site.Price.Series.Covers(w.Start, w.End))
}

// Bounds returns the minimum and maximum of a series between two times.
func Bounds(c *grid.Series, from, until time.Time) (least, greatest float64) {
	least = c.At(from)
	greatest = least
	for t := range c.Steps(from, until) {
		v := c.At(t)
		least, greatest = min(least, v), max(greatest, v)
	}
	return least, greatest
}

// cheapestTariff implements the start rule "price": the window with the lowest energy price, regardless of other
// weights.
func cheapestTariff(s *Snapshot, j *Job) (Window, Reason) { return cheapest(s, j, priceAlone) }

// Saving returns the forecast saving of a start of j as a fraction of the cost of an immediate start, and the
// avoided emissions if carbon is considered. For the start chosen by the start rule "window", they equal the values
// in its reason. Both are negative if the start costs more. It returns false if a required forecast does not cover
// the start.
func (s *Snapshot) Saving(j *Job, start time.Time) (share float64, carbon energy.Grams, ok bool) {
	now := j.Window(s.Now)
	search := windowSearch{s: s, j: j, weights: s.Weights(j), power: expectedPower(j)}
	if _, ok := search.mayHold(now, s.Policy.LatestStart(j)); !ok {
		return 0, 0, false
	}
	costNow, atOnce := search.best(now)
	costLater, then := search.best(j.Window(start))
	if math.IsInf(then, 0) {
		return 0, 0, false
	}
	if search.weights.CountCarbon() {
		carbon = costNow.Carbon - costLater.Carbon
	}
	return (atOnce - then) / max(math.Abs(atOnce), math.SmallestNonzeroFloat64), carbon, true
}
