package sched

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// belowThreshold implements the start rule "threshold". A job waits while every site exceeds its limits, and starts
// as soon as the forecast of some site is within them. A value equal to the limit is within it. If no forecast
// meets the limits before the latest start, the job is started as with "window", because waiting would only consume
// the delay and often cause more emissions. If a forecast ends before the latest start, the job continues to wait,
// because the next forecast may meet the limits. A job without limits starts immediately, and so does a job if no
// site has the signals for its limits.
//
// A limit may be absolute or a percentile. A percentile is the value that the site's own intensity does not exceed
// for that fraction of the next 24 hours, or of the part of them covered by the forecast. If both are given, the
// lower one applies.
//
// Signals are piecewise constant, so limits can only be met or exceeded at the steps of a signal. Checking the
// steps is therefore exact.
func belowThreshold(s *Snapshot, j *Job) (Window, Reason) {
	now := j.Window(s.Now)
	latest := s.Policy.LatestStart(j)
	if kind, ok := s.mayWait(j, latest); !ok {
		return now, Reason{Kind: kind}
	}
	if !j.Limits.limitsCarbon() && !j.Limits.HasPrice {
		return now, Reason{Kind: Cheapest}
	}
	sites := s.Known(j, j.Limits.limitsCarbon(), j.Limits.HasPrice)
	if len(sites) == 0 {
		return now, Reason{Kind: NoFreshSignal}
	}
	first := s.firstOpening(sites, &j.Limits, latest)
	reason := first.limits.reason(first.site, s.Now)
	if len(s.Sites) > 1 {
		reason.Site = first.site.Name
	}
	if first.at.Equal(s.Now) {
		reason.Kind = WithinThreshold
		return now, reason
	}
	ends := func(site *Site) bool { return first.limits.ends(site, latest) }
	if first.at.IsZero() && !slices.ContainsFunc(sites, ends) {
		return s.unmet(j, reason)
	}
	reason.Kind, reason.Until, reason.Latest = AboveThreshold, first.at, latest
	return j.Window(cmp.Or(first.at, latest)), reason
}

// unmet starts a job at the lowest cost if no site will be within its limits in time. If only the price is limited,
// the cost is the price.
func (s *Snapshot) unmet(j *Job, unmet Reason) (Window, Reason) {
	weights := s.Weights(j)
	if !j.Limits.limitsCarbon() {
		weights = priceAlone
	}
	w, reason := cheapest(s, j, weights)
	if reason.Kind != CheaperLater {
		reason.Kind = ThresholdUnmet
	}
	reason.Present, reason.Limit, reason.Threshold = unmet.Present, unmet.Limit, unmet.Threshold
	reason.Unit, reason.Site = unmet.Unit, unmet.Site
	return w, reason
}

// opening is the first time when a site is within the limits of a job.
type opening struct {
	site   *Site
	limits siteLimits
	at     time.Time // zero if the forecast has no such time
}

// firstOpening returns the site that is first within the limits, at the latest start or earlier. If there is none,
// it returns the first site, with the reason.
func (s *Snapshot) firstOpening(sites []*Site, l *Limits, latest time.Time) (first opening) {
	var buffer []Piece // reused from site to site
	for _, site := range sites {
		here := opening{site: site, limits: siteLimits{price: math.Inf(1)}}
		here.limits.carbon, here.limits.percentile, buffer = carbonLimit(l, site.Carbon.Series, s.Now, buffer)
		if l.HasPrice {
			here.limits.price = float64(l.Price)
		}
		here.at = here.limits.opens(site, s.Now, latest)
		if first.site == nil || !here.at.IsZero() && (first.at.IsZero() || here.at.Before(first.at)) {
			first = here
		}
		if first.at.Equal(s.Now) {
			break
		}
	}
	return first
}

// siteLimits are the limits of a job at one site. A limit that is not set is infinite.
type siteLimits struct {
	carbon, price float64
	percentile    bool // whether the carbon limit is a percentile
}

// ends reports whether the forecast of a limited signal ends before the latest start.
func (l *siteLimits) ends(site *Site, latest time.Time) bool {
	return !math.IsInf(l.carbon, 1) && !site.Carbon.Series.Covers(latest, latest) ||
		!math.IsInf(l.price, 1) && !site.Price.Series.Covers(latest, latest)
}

// kept reports whether the signals of the site are known and within the limits at t.
func (l *siteLimits) kept(site *Site, t time.Time) bool {
	return keeps(site.Carbon.Series, t, l.carbon) && keeps(site.Price.Series, t, l.price)
}

func keeps(series *grid.Series, t time.Time, limit float64) bool {
	return math.IsInf(limit, 1) || series.Covers(t, t) && series.At(t) <= limit
}

// opens returns the first time from now to the latest start when the signals are within the limits, or zero if
// there is none.
func (l *siteLimits) opens(site *Site, now, latest time.Time) (first time.Time) {
	if l.kept(site, now) {
		return now
	}
	until := latest
	for _, signal := range [2]struct {
		series *grid.Series
		limit  float64
	}{{site.Carbon.Series, l.carbon}, {site.Price.Series, l.price}} {
		if math.IsInf(signal.limit, 1) {
			continue
		}
		for t := range signal.series.Steps(now, until) {
			if l.kept(site, t) {
				first, until = t, t
				break
			}
		}
	}
	return first
}

// reason returns the limit that is currently exceeded, or otherwise a limit that is met.
func (l *siteLimits) reason(site *Site, now time.Time) Reason {
	if carbon := site.Carbon.Series; !math.IsInf(l.carbon, 1) && (carbon.At(now) > l.carbon || math.IsInf(l.price, 1)) {
		r := Reason{Present: carbon.At(now), Limit: "carbon-threshold", Threshold: l.carbon, Unit: unitCarbon}
		if l.percentile {
			r.Limit = "carbon-percentile"
		}
		return r
	}
	if price := site.Price.Series; !math.IsInf(l.price, 1) {
		return Reason{Present: price.At(now), Limit: "price-threshold", Threshold: l.price, Unit: unitPrice}
	}
	return Reason{}
}

// carbonLimit returns the maximum intensity for a start, or +Inf if there is no limit, and whether it is a
// percentile.
func carbonLimit(l *Limits, series *grid.Series, now time.Time, buffer []Piece) (
	limit float64, percentile bool, _ []Piece,
) {
	limit = math.Inf(1)
	if !l.limitsCarbon() {
		return limit, false, buffer
	}
	if l.Carbon > 0 {
		limit = float64(l.Carbon)
	}
	if l.Percentile > 0 {
		var q float64
		q, buffer = quantile(series, now, now.Add(Day), l.Percentile, buffer)
		limit, percentile = min(limit, q), q < limit
	}
	return limit, percentile, buffer
}

// quantile returns the lowest value of the series that is not exceeded for at least the fraction p of the time
// between now and until, or the end of the series. The series must cover now. The buffer is reused.
func quantile(series *grid.Series, now, until time.Time, p float64, buffer []Piece) (float64, []Piece) {
	until = timeutil.Earlier(until, series.End())
	buffer = PiecesOf(buffer[:0], series, now, until)
	slices.SortFunc(buffer, func(a, b Piece) int { return cmp.Compare(a.Rate, b.Rate) })
	want, held := p*float64(until.Sub(now)), time.Duration(0)
	for _, part := range buffer {
		if held += part.End.Sub(part.Start); float64(held) >= want {
			return part.Rate, buffer
		}
	}
	return buffer[len(buffer)-1].Rate, buffer
}
