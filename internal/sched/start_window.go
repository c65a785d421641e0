package sched

import (
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// StartNow is the when "now".
func StartNow(s *Snapshot, j *Job) (Window, Reason) {
	return j.Window(s.Now), Reason{Kind: Cheapest}
}

// cheapestWindow is the when "window": of all starts between now and the job's latest start, the one of least cost over
// the job's whole duration, on the forecast of every site. Each hour of waiting costs the share that the policy wants
// it to save. The job starts at once where waiting does not save as much as the policy asks. Only signals that have a
// weight are looked at.
//
// The cost of a start at one site is piecewise linear in the start, because signals are piecewise constant; its
// minimum therefore lies where one end of the window meets a step of a signal of that site, or at a limit of the start.
// Trying just these is exact, and as the best site of the best start is sought, no site need be tried at the steps of
// another.
func cheapestWindow(s *Snapshot, j *Job) (Window, Reason) { return cheapest(s, j, s.Weights(j)) }

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
		start = search.start(latest, atOnce) // the owner is told what this would have saved
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

// BestStart returns the start up to the latest at which a run meets the least mean of a signal: of equal ones the
// first. It is where "window" puts a job that only this signal concerns, so that people are told the same.
func BestStart(signal *grid.Series, from, latest time.Time, length time.Duration) time.Time {
	s := &Snapshot{Now: from, Sites: []*Site{{Carbon: grid.Signal{Series: signal}}}}
	window, _ := cheapest(s, &Job{Submitted: from, Duration: length, AllowedDelay: latest.Sub(from)}, CarbonAlone)
	return window.Start
}

// LatestStart is the job's own latest start, clamped by the policy.
func (p *Policy) LatestStart(j *Job) time.Time {
	latest := j.LatestStart()
	if limit := j.Submitted.Add(p.MaxDelay); p.MaxDelay > 0 && limit.Before(latest) {
		return limit
	}
	return latest
}

// mayWait reports whether j may start later than now, and if not, why it starts now.
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

// Known returns the sites where j may run that have the signals that matter, none of them too old. One site of which
// nothing is known must not decide for all the others: it is left out, and the job may still be placed there.
func (s *Snapshot) Known(j *Job, carbon, price bool) []*Site {
	return sitesThat(s.Sites, func(site *Site) bool {
		return j.MayRunAt(site) && (!carbon || site.Carbon.Fresh(s.Now, s.Policy.MaxSignalAge)) &&
			(!price || site.Price.Fresh(s.Now, s.Policy.MaxSignalAge))
	})
}

// sitesThat returns the sites for which ok holds: the very slice if that is all of them, as it mostly is.
func sitesThat(sites []*Site, ok func(*Site) bool) []*Site {
	lacks := func(site *Site) bool { return !ok(site) }
	if !slices.ContainsFunc(sites, lacks) {
		return sites
	}
	return slices.DeleteFunc(slices.Clone(sites), lacks)
}

// Tolerance is the relative difference below which two costs are the same: integrals of a constant signal differ in
// their last digits, and no job should wait for that.
const Tolerance = 1e-9

// expectedPower stands in for the node that is not chosen yet: what is expected of jobs like this one, else the
// nominal power of the request. Only ratios between windows depend on a signal, so any positive number gives the same
// order, unless time has a weight of its own; then it says what waiting is worth. This one also makes the reported
// savings plausible.
func expectedPower(j *Job) energy.Watts {
	const minCores = 0.1
	if j.HasExpected && ValidPower(j.Expected) {
		return max(j.Expected, nominalWattsPerCore*minCores)
	}
	return nominalWattsPerCore * energy.Watts(max(float64(j.Request.MilliCPU)/1000, minCores))
}

// windowSearch prices windows of one job.
type windowSearch struct {
	s       *Snapshot
	sites   []*Site // of which enough is known
	j       *Job
	weights Weights
	power   energy.Watts
	perHour float64 // cost of an hour of waiting
}

// mayHold reports whether there is anything to choose from, and if not, why the job runs now.
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

// start returns the start of least cost; of equal ones the earliest.
func (c *windowSearch) start(latest time.Time, atOnce float64) time.Time {
	start, least := c.s.Now, atOnce
	for _, site := range c.sites {
		if c.atBest(site, latest) <= least+Tolerance*math.Abs(least) {
			start, least = c.cheaper(site, latest, start, least)
		}
	}
	return start
}

// atBest returns what no window at the site can cost less than: its signals at their lowest all the time. Of many sites
// most need no closer look.
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

// cheaper returns the start and cost of the best window at the site, if that is cheaper than the least cost known so
// far, or as cheap and earlier.
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

// best returns what w adds at the site where it costs least, and that cost.
func (c *windowSearch) best(w Window) (e Estimate, least float64) {
	least = math.Inf(1)
	for _, site := range c.sites {
		if here, cost := c.at(site, w); cost < least {
			e, least = here, cost
		}
	}
	return e, least
}

// at returns what w adds at a site, and its cost; windows that a forecast does not cover cost infinitely much.
func (c *windowSearch) at(site *Site, w Window) (Estimate, float64) {
	if !c.covered(site, w) {
		return Estimate{}, math.Inf(1)
	}
	r := site.steadyRates(w, site.pueFor(c.j))
	e := r.Estimate(c.power, 0)
	return e, c.weights.Cost(e, c.j.Submitted, 0)
}

// covered reports whether all that w is priced with is known for all of it.
func (c *windowSearch) covered(site *Site, w Window) bool {
	return (!c.weights.CountCarbon() || site.Carbon.Series.Covers(w.Start, w.End)) &&
		(!c.weights.CountPrice() || site.Price.Series.Covers(w.Start, w.End))
}

// Bounds returns the least and the greatest value of a series from one instant until another.
func Bounds(c *grid.Series, from, until time.Time) (least, greatest float64) {
	least = c.At(from)
	greatest = least
	for t := range c.Steps(from, until) {
		v := c.At(t)
		least, greatest = min(least, v), max(greatest, v)
	}
	return least, greatest
}

// cheapestTariff is the when "price": the window of least price, whatever other weights say.
func cheapestTariff(s *Snapshot, j *Job) (Window, Reason) { return cheapest(s, j, priceAlone) }

// Saving returns what a start of j saves on the forecast: the share of the cost of starting at once, and the emissions
// where carbon counts. Of the start that the when "window" chooses these are what its reason names. Both are negative
// where the start costs more. ok is false where a forecast that counts does not tell of it.
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
