package sched

import (
	"time"

	"github.com/kubenergy/kubenergy/energy"
	"github.com/kubenergy/kubenergy/grid"
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
// the wake-up of an empty node. It is the only place that knows physics and tariffs. Emissions and cost are zero where
// the site has no such signal; strategies that need one ask for it first.
func (s *Snapshot) Estimate(j *Job, n *Node, w Window) Estimate {
	power, wakeUp := n.marginal(j.Request)
	return n.Site.Account(power, wakeUp, w)
}

// Account prices power drawn at nodes of the site during w, and a burst of energy at its start, at the site's meter.
func (s *Site) Account(power energy.Watts, burst energy.Joules, w Window) Estimate {
	r := s.rates(w)
	return r.of(power, burst)
}

// rates are what one watt over a window, and one joule at its start, add at a site's meter. Many nodes share them.
type rates struct {
	watt, joule struct{ energy, carbon, cost float64 }
	end         time.Time
}

const joulesPerKWh = 3.6e6

func (s *Site) rates(w Window) (r rates) {
	pue := s.pue()
	r.end = w.End
	r.watt.energy, r.joule.energy = pue*w.End.Sub(w.Start).Seconds(), pue
	if carbon := s.Carbon.Series; carbon != nil {
		r.watt.carbon = pue * carbon.Integral(w.Start, w.End) / joulesPerKWh
		r.joule.carbon = pue * carbon.At(w.Start) / joulesPerKWh
	}
	if price := s.Price.Series; price != nil {
		r.watt.cost = pue * price.Integral(w.Start, w.End) / joulesPerKWh
		r.joule.cost = pue * price.At(w.Start) / joulesPerKWh
	}
	return r
}

func (r *rates) energy(power energy.Watts, burst energy.Joules) energy.Joules {
	return energy.Joules(float64(power)*r.watt.energy + float64(burst)*r.joule.energy)
}

func (r *rates) carbon(power energy.Watts, burst energy.Joules) energy.Grams {
	return energy.Grams(float64(power)*r.watt.carbon + float64(burst)*r.joule.carbon)
}

func (r *rates) cost(power energy.Watts, burst energy.Joules) grid.Money {
	return grid.Money(float64(power)*r.watt.cost + float64(burst)*r.joule.cost)
}

func (r *rates) of(power energy.Watts, burst energy.Joules) Estimate {
	return Estimate{Energy: r.energy(power, burst), Carbon: r.carbon(power, burst), Cost: r.cost(power, burst), Finish: r.end}
}
