package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Window is the half-open time interval [Start, End).
type Window struct{ Start, End time.Time }

// Estimate is the predicted additional energy at the site's meter (including PUE), the emissions and the cost of
// running a job, and its finish time. Its data quality is always "estimated".
type Estimate struct {
	Energy energy.Joules
	Carbon energy.Grams
	Cost   grid.Money
	Finish time.Time
}

// Estimate predicts the effect of running j on n during w: the increase in the node's power multiplied by the time,
// plus the energy for waking an empty node. All power models and tariffs are applied here. Emissions and cost are
// zero if the site is unknown or has no signal for them, and all values except Finish are zero if the node has no
// power profile. Strategies check for missing data before they call it.
func (s *Snapshot) Estimate(j *Job, n *Node, w Window) Estimate {
	if n.Profile == nil {
		return Estimate{Finish: w.End}
	}
	power, wakeUp := n.Marginal(j)
	r := n.Site.Rates(w, n.PUEFor(j))
	return r.Estimate(power, wakeUp)
}

// Account returns the energy, emissions and cost of power drawn by nodes of the site during w and of a burst of
// energy at its start, all at the site's meter.
func (s *Site) Account(power energy.Watts, burst energy.Joules, w Window) Estimate {
	if burst == 0 { // the common case
		r := s.steadyRates(w, s.pue())
		return r.Estimate(power, 0)
	}
	r := s.Rates(w, s.pue())
	return r.Estimate(power, burst)
}

// Rates are the energy, emissions and cost at a site's meter per watt drawn during a window, and per joule drawn at
// its start. Nodes with the same site and PUE share them.
type Rates struct {
	watt, joule perUnit
	end         time.Time
}

// perUnit is the energy, emissions and cost of one unit.
type perUnit struct{ energy, carbon, cost float64 }

// Rates returns the rates of the site for the window w and the given PUE. Emissions and cost are zero if the site
// is nil or has no signal for them.
func (s *Site) Rates(w Window, pue float64) Rates {
	r := s.steadyRates(w, pue)
	r.joule.energy = pue
	if s == nil {
		return r
	}
	if carbon := s.Carbon.Series; carbon != nil {
		r.joule.carbon = pue * carbon.At(w.Start) / energy.JoulesPerKWh
	}
	if price := s.Price.Series; price != nil {
		r.joule.cost = pue * price.At(w.Start) / energy.JoulesPerKWh
	}
	return r
}

// steadyRates returns the rates per watt only, for callers that do not wake a node.
func (s *Site) steadyRates(w Window, pue float64) (r Rates) {
	r.end = w.End
	r.watt.energy = pue * w.End.Sub(w.Start).Seconds()
	if s == nil { // unknown site
		return r
	}
	if carbon := s.Carbon.Series; carbon != nil {
		r.watt.carbon = pue * carbon.Integral(w.Start, w.End) / energy.JoulesPerKWh
	}
	if price := s.Price.Series; price != nil {
		r.watt.cost = pue * price.Integral(w.Start, w.End) / energy.JoulesPerKWh
	}
	return r
}

// Energy returns the energy at the site's meter for power drawn during the window and a burst at its start, in
// joules.
func (r *Rates) Energy(power energy.Watts, burst energy.Joules) energy.Joules {
	return energy.Joules(float64(power)*r.watt.energy + float64(burst)*r.joule.energy)
}

// Carbon returns the emissions for power drawn during the window and a burst at its start, in grams of CO2e.
func (r *Rates) Carbon(power energy.Watts, burst energy.Joules) energy.Grams {
	return energy.Grams(float64(power)*r.watt.carbon + float64(burst)*r.joule.carbon)
}

func (r *Rates) cost(power energy.Watts, burst energy.Joules) grid.Money {
	return grid.Money(float64(power)*r.watt.cost + float64(burst)*r.joule.cost)
}

// Estimate returns the energy, emissions and cost of power drawn during the window and of a burst at its start. Its
// Finish is the end of the window.
func (r *Rates) Estimate(power energy.Watts, burst energy.Joules) Estimate {
	return Estimate{
		Energy: r.Energy(power, burst), Carbon: r.Carbon(power, burst), Cost: r.cost(power, burst), Finish: r.end,
	}
}
