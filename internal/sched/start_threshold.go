package sched

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// belowThreshold is the when "threshold": the job waits while no site keeps to its limits, and starts at the first
// instant for which the forecast has one that does. A value equal to its limit keeps to it. Where no forecast has one
// before the latest start, limits cannot be kept, and the job starts as with "window": waiting for what will not come
// would cost the delay, and often emissions. Where a forecast ends before the latest start, the job waits on: the next
// forecast may know better. Without limits it starts at once, and so it does where no site has the signals that the
// limits need.
//
// A limit may be absolute, or a percentile: the value below which the site's own intensity stays for that share of the
// next 24 hours, or of what the forecast has of them. Given both, the lower one counts.
//
// Signals are piecewise constant, so whether a site keeps to its limits only changes at their steps: trying these is
// exact.
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

// unmet starts a job whose limits no site will keep to in time, by cost. Where price alone is limited, that is price.
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

// opening is when a site first keeps to the limits of a job.
type opening struct {
	site   *Site
	limits siteLimits
	at     time.Time // zero if the forecast names no such instant
}

// firstOpening returns the site that keeps to the limits first, no later than the latest start; if none does, the first
// one that says why.
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

// siteLimits are the limits of one job at one site; infinite where there is none.
type siteLimits struct {
	carbon, price float64
	percentile    bool // the one of carbon is a percentile
}

// ends reports whether a signal that is limited is not known until the latest start.
func (l *siteLimits) ends(site *Site, latest time.Time) bool {
	return !math.IsInf(l.carbon, 1) && !site.Carbon.Series.Covers(latest, latest) ||
		!math.IsInf(l.price, 1) && !site.Price.Series.Covers(latest, latest)
}

// kept reports whether the signals of the site are known to keep to the limits at t.
func (l *siteLimits) kept(site *Site, t time.Time) bool {
	return keeps(site.Carbon.Series, t, l.carbon) && keeps(site.Price.Series, t, l.price)
}

func keeps(series *grid.Series, t time.Time, limit float64) bool {
	return math.IsInf(limit, 1) || series.Covers(t, t) && series.At(t) <= limit
}

// opens returns the first instant from now to the latest start at which the limits are kept, zero if there is none.
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

// reason says which limit is exceeded now, or else which one is kept.
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

// carbonLimit returns the intensity that a start must not exceed, +Inf if there is no limit, and whether it is the
// percentile's.
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

// quantile returns the least value of the series such that what is not above it holds for at least share p of the time
// between now and until, as far as the series goes; it must cover now. The buffer is reused.
func quantile(series *grid.Series, now, until time.Time, p float64, buffer []Piece) (float64, []Piece) {
	until = timeutil.Earlier(until, series.End())
	buffer = piecesOf(buffer[:0], series, now, until)
	slices.SortFunc(buffer, func(a, b Piece) int { return cmp.Compare(a.Rate, b.Rate) })
	want, held := p*float64(until.Sub(now)), time.Duration(0)
	for _, part := range buffer {
		if held += part.End.Sub(part.Start); float64(held) >= want {
			return part.Rate, buffer
		}
	}
	return buffer[len(buffer)-1].Rate, buffer
}
