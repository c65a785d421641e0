package sched

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
)

// startNow is the when "now".
func startNow(s *Snapshot, j *Job) (Window, Reason) {
	return Window{s.Now, s.Now.Add(j.Duration)}, Reason{Kind: Cheapest}
}

// cheapestWindow is the when "window": of all starts between now and the job's latest start, the one of least cost over
// the job's whole duration, on the forecast of every site. The job starts at once where waiting saves nothing.
//
// The cost of a start is piecewise linear in the start, because signals are piecewise constant; its minimum therefore
// lies where one end of the window meets a step of a signal, or at either limit. Trying just these is exact.
func cheapestWindow(s *Snapshot, j *Job) (Window, Reason) {
	now := Window{s.Now, s.Now.Add(j.Duration)}
	latest := s.Policy.latestStart(j)
	if kind, ok := s.mayHold(j, now, latest); !ok {
		return now, Reason{Kind: kind}
	}
	search := windowSearch{s: s, j: j, power: nominalPower(j)}
	atOnce := search.best(now)
	start, least := now.Start, atOnce
	consider := func(t time.Time) {
		c := search.best(Window{t, t.Add(j.Duration)})
		if margin := tolerance * math.Abs(least); c < least-margin || c <= least+margin && t.Before(start) {
			start, least = t, c
		}
	}
	for _, site := range s.Sites {
		for _, signal := range [2]*grid.Series{site.Carbon.Series, site.Price.Series} {
			if signal == nil {
				continue
			}
			for t := range signal.Steps(s.Now, latest) {
				consider(t)
			}
			for t := range signal.Steps(now.End, latest.Add(j.Duration)) {
				consider(t.Add(-j.Duration))
			}
		}
	}
	consider(latest)
	if saved := atOnce - least; start.Equal(now.Start) || saved <= max(tolerance, s.Policy.MinSaving)*math.Abs(atOnce) {
		return now, Reason{Kind: NothingToSave}
	}
	window := Window{start, start.Add(j.Duration)}
	return window, Reason{
		Kind: CheaperLater, Until: start, Latest: latest,
		Saving: (atOnce - least) / max(math.Abs(atOnce), math.SmallestNonzeroFloat64),
		Carbon: search.carbon(now) - search.carbon(window),
	}
}

// latestStart is the job's own latest start, clamped by the policy.
func (p *Policy) latestStart(j *Job) time.Time {
	latest := j.LatestStart()
	if limit := j.Submitted.Add(p.MaxDelay); p.MaxDelay > 0 && limit.Before(latest) {
		return limit
	}
	return latest
}

// mayHold reports whether there is anything to choose from, and if not, why the job runs now.
func (s *Snapshot) mayHold(j *Job, now Window, latest time.Time) (why ReasonKind, ok bool) {
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
	for _, site := range s.Sites {
		if !site.Carbon.Fresh(s.Now, s.Policy.MaxSignalAge) {
			return NoFreshSignal, false
		}
		if !site.Carbon.Series.Covers(now.Start, now.End) {
			return BeyondForecast, false
		}
		if s.Policy.Weights.Price == 0 {
			continue
		}
		if !site.Price.Fresh(s.Now, s.Policy.MaxSignalAge) {
			return NoFreshSignal, false
		}
		if !site.Price.Series.Covers(now.Start, now.End) {
			return BeyondForecast, false
		}
	}
	return NoOpinion, true
}

// tolerance is the relative difference below which two costs are the same: integrals of a constant signal differ in
// their last digits, and nobody is to wait for those.
const tolerance = 1e-9

// nominalPower stands in for the node that is not chosen yet. Only ratios between windows depend on a signal, so any
// positive number gives the same order; this one makes the reported savings plausible.
func nominalPower(j *Job) energy.Watts {
	cores := max(float64(j.Request.MilliCPU)/1000, 0.1)
	return nominalWattsPerCore * energy.Watts(cores)
}

type windowSearch struct {
	s     *Snapshot
	j     *Job
	power energy.Watts
}

// best returns the cost of w at the site where it is least; windows that a forecast does not cover cost infinitely much.
func (c *windowSearch) best(w Window) float64 {
	least := math.Inf(1)
	weights := c.s.Policy.Weights.orDefault()
	for _, site := range c.s.Sites {
		if !c.covered(site, w) {
			continue
		}
		least = min(least, weights.cost(site.Account(c.power, 0, w), c.j.Submitted, 0))
	}
	return least
}

// covered reports whether all that w is priced with is known for all of it.
func (c *windowSearch) covered(site *Site, w Window) bool {
	return site.Carbon.Series.Covers(w.Start, w.End) &&
		(c.s.Policy.Weights.Price == 0 || site.Price.Series.Covers(w.Start, w.End))
}

// carbon returns the emissions of w at the site of least cost.
func (c *windowSearch) carbon(w Window) energy.Grams {
	least := math.Inf(1)
	var grams energy.Grams
	weights := c.s.Policy.Weights.orDefault()
	for _, site := range c.s.Sites {
		e := site.Account(c.power, 0, w)
		if v := weights.cost(e, c.j.Submitted, 0); v < least && c.covered(site, w) {
			least, grams = v, e.Carbon
		}
	}
	return grams
}
