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
	pue := s.pue()
	e := Estimate{
		Energy: energy.Joules(pue) * (power.For(w.End.Sub(w.Start)) + burst),
		Finish: w.End,
	}
	if carbon := s.Carbon.Series; carbon != nil {
		e.Carbon = energy.Grams(pue * overWindow(carbon, power, burst, w))
	}
	if price := s.Price.Series; price != nil {
		e.Cost = grid.Money(pue * overWindow(price, power, burst, w))
	}
	return e
}

// overWindow multiplies a signal per kWh with power over w and a burst at its start.
func overWindow(signal *grid.Series, power energy.Watts, burst energy.Joules, w Window) float64 {
	// The integral is in signal·seconds, so power times it is signal·joules.
	total := energy.Joules(float64(power) * signal.Integral(w.Start, w.End)).KWh()
	if burst != 0 {
		total += signal.At(w.Start) * burst.KWh()
	}
	return total
}
