package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
)

// Window is the half-open interval [Start, End).
type Window struct{ Start, End time.Time }

// Estimate is what running a job is predicted to add: energy at the site's meter (PUE included), emissions, cost, and
// when it ends. It is always of quality estimated.
type Estimate struct {
	Energy energy.Joules
	Carbon energy.Grams
	Cost   grid.Money
	Finish time.Time
}

// Estimate predicts what j adds when it runs on n during w: the power that the node draws more, times the time, plus
// the wake-up of an empty node. It is the only place that knows physics and tariffs. Emissions and cost are zero
// where the site has no such signal or the node no site, and everything is where the node has no power profile;
// strategies that need one ask for it first.
func (s *Snapshot) Estimate(j *Job, n *Node, w Window) Estimate {
	if n.Profile == nil {
		return Estimate{Finish: w.End}
	}
	power, wakeUp := n.Marginal(j)
	r := n.Site.Rates(w, n.PUEFor(j))
	return r.Estimate(power, wakeUp)
}

// Account prices power drawn at nodes of the site during w, and a burst of energy at its start, at the site's meter.
func (s *Site) Account(power energy.Watts, burst energy.Joules, w Window) Estimate {
	if burst == 0 { // as it mostly is
		r := s.steadyRates(w, s.pue())
		return r.Estimate(power, 0)
	}
	r := s.Rates(w, s.pue())
	return r.Estimate(power, burst)
}

// Rates are what one watt over a window, and one joule at its start, add at a site's meter. Many nodes share them, if
// their PUE is the same.
type Rates struct {
	watt, joule perUnit
	end         time.Time
}

// perUnit is what one unit adds.
type perUnit struct{ energy, carbon, cost float64 }

// Rates returns what one watt that is drawn during w, and one joule that is drawn at its start, add at the site's meter
// at the given PUE. Emissions and cost are zero where the site has no such signal, or is nil.
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

// steadyRates are the rates of a watt alone, for who wakes nothing.
func (s *Site) steadyRates(w Window, pue float64) (r Rates) {
	r.end = w.End
	r.watt.energy = pue * w.End.Sub(w.Start).Seconds()
	if s == nil { // the site of the node is unknown
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

// Energy returns the joules that power drawn during the window, and a burst at its start, add at the site's meter.
func (r *Rates) Energy(power energy.Watts, burst energy.Joules) energy.Joules {
	return energy.Joules(float64(power)*r.watt.energy + float64(burst)*r.joule.energy)
}

// Carbon returns the grams of CO2e that power drawn during the window, and a burst at its start, add.
func (r *Rates) Carbon(power energy.Watts, burst energy.Joules) energy.Grams {
	return energy.Grams(float64(power)*r.watt.carbon + float64(burst)*r.joule.carbon)
}

func (r *Rates) cost(power energy.Watts, burst energy.Joules) grid.Money {
	return grid.Money(float64(power)*r.watt.cost + float64(burst)*r.joule.cost)
}

// Estimate returns all that power drawn during the window, and a burst at its start, add. Its finish is the end of the
// window.
func (r *Rates) Estimate(power energy.Watts, burst energy.Joules) Estimate {
	return Estimate{
		Energy: r.Energy(power, burst), Carbon: r.Carbon(power, burst), Cost: r.cost(power, burst), Finish: r.end,
	}
}
