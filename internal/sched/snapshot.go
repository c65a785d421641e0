package sched

import (
	"cmp"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Snapshot is everything that a decision may depend on.
type Snapshot struct {
	Now    time.Time
	Queue  []Job   // one job in a live cycle; several in batch
	Nodes  []*Node // see the package documentation on who decides feasibility
	Sites  []*Site // every site that the queue might run at
	Policy Policy
	Last   string // node of the last decision carried out; "" if none
}

// Policy holds weights and limits.
type Policy struct {
	Weights Weights `json:"weights,omitzero"`
	// no hold lasts longer, whatever a job allows; 0: no such limit. Written in nanoseconds, as all durations
	MaxDelay     time.Duration `json:"maxDelay,omitempty"`
	MaxSignalAge time.Duration `json:"maxSignalAge,omitempty"` // an older signal is no signal; 0: signals do not age
	// share of the cost of starting now that a hold must save; 0: anything
	MinSaving float64 `json:"minSaving,omitempty"`
	// what "window" asks of a hold besides: the share that each hour of waiting must save, and emissions
	MinSavingPerHour float64      `json:"minSavingPerHour,omitempty"`
	MinSavingGrams   energy.Grams `json:"minSavingGrams,omitempty"`
	// breaks ties of least-allocated as stock does, at random; 0: by node name
	Seed uint64 `json:"seed,omitempty"`
	// a budget is used up: what may wait starts no earlier, or at its latest start; zero: none is
	Closed time.Time `json:"closed,omitzero"`
	Budget string    `json:"budget,omitempty"` // and which one
}

// Weights turn an estimate into one number, in grams of CO2e. The zero Weights count carbon alone.
type Weights struct {
	Carbon float64 `json:"carbon"` // per gram emitted
	Wait   float64 `json:"wait"`   // grams per hour between submission and finish
	Price  float64 `json:"price"`  // grams per unit of money
	// grams at a fully used node: spreads load where it is positive, packs where it is negative
	Utilisation float64 `json:"utilisation"`
}

// The median power of a busy virtual core over current server generations is 3.5 to 4.2 W in the Cloud Carbon Footprint
// coefficients; it only scales how a hold's saving compares with the other weights.
const nominalWattsPerCore = 4

var (
	// CarbonAlone are the weights that hold where a policy sets none: emissions count, and nothing else.
	CarbonAlone = Weights{Carbon: 1}
	priceAlone  = Weights{Price: 1}
)

// Weights returns the weights that hold for j. What is left where carbon is not to count is price alone, if nothing
// else has a weight.
func (s *Snapshot) Weights(j *Job) Weights {
	w := s.Policy.Weights
	if !j.Limits.NoCarbon {
		return cmp.Or(w, CarbonAlone)
	}
	w.Carbon = 0
	return cmp.Or(w, priceAlone)
}

// CountCarbon reports whether a cost depends on the carbon intensity, which need not be known otherwise.
func (w *Weights) CountCarbon() bool { return w.Carbon != 0 }

// CountPrice reports whether a cost depends on the price of energy, which need not be known otherwise.
func (w *Weights) CountPrice() bool { return w.Price != 0 }

// Cost weighs an estimate for a job submitted at a given time, on a node of the given utilisation.
func (w Weights) Cost(e Estimate, submitted time.Time, utilisation float64) float64 {
	c := w.Carbon*float64(e.Carbon) + w.Price*float64(e.Cost) + w.Utilisation*utilisation
	if w.Wait != 0 {
		c += w.Wait * e.Finish.Sub(submitted).Hours()
	}
	return c
}
