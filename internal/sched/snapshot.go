package sched

import (
	"cmp"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Snapshot contains all inputs of a decision.
type Snapshot struct {
	Now    time.Time
	Queue  []Job   // one job in a live scheduling cycle; several in batch planning
	Nodes  []*Node // see the package documentation on feasibility
	Sites  []*Site // all sites where jobs of the queue may run
	Policy Policy
	Last   string   // node of the last decision that was applied; empty if none
	Ahead  []Demand // jobs that placements leave room for, see [Snapshot.Crowding]
}

// Policy contains the weights and limits of the cluster.
type Policy struct {
	Weights Weights `json:"weights,omitzero"`
	// MaxDelay limits the delay of every job, regardless of its allowed delay; 0 means no limit. All durations are
	// encoded in nanoseconds.
	MaxDelay     time.Duration `json:"maxDelay,omitempty"`
	MaxSignalAge time.Duration `json:"maxSignalAge,omitempty"` // maximum age of signals; 0 means unlimited
	// MinSaving is the minimum saving of a hold, as a fraction of the cost of an immediate start; 0 means any
	// saving.
	MinSaving float64 `json:"minSaving,omitempty"`
	// MinSavingPerHour and MinSavingGrams are further conditions of "window" and joint plans on a hold: the fraction
	// that each hour of waiting must save, and the minimum reduction of emissions.
	MinSavingPerHour float64      `json:"minSavingPerHour,omitempty"`
	MinSavingGrams   energy.Grams `json:"minSavingGrams,omitempty"`
	// Seed is the seed for breaking ties of "least-allocated" at random, as the default scheduler does; 0 means
	// that ties are broken by node name.
	Seed uint64 `json:"seed,omitempty"`
	// Closed is the time when new work may start again after a budget has been exhausted. Jobs that may wait are
	// held until then, or until their latest start. The zero value means that no budget is exhausted.
	Closed time.Time `json:"closed,omitzero"`
	Budget string    `json:"budget,omitempty"` // name of the exhausted budget
}

// Weights combine the parts of an estimate into a single cost, in grams of CO2e. The zero value only considers
// carbon.
type Weights struct {
	Carbon float64 `json:"carbon"` // per gram of emissions
	Wait   float64 `json:"wait"`   // in grams per hour between submission and finish
	Price  float64 `json:"price"`  // in grams per unit of money
	// Utilisation is the cost of a fully used node, in grams. Positive values spread the load, negative values pack
	// it.
	Utilisation float64 `json:"utilisation"`
}

// nominalWattsPerCore is the power of a busy virtual core if no profile is available. The Cloud Carbon Footprint
// coefficients have a median of 3.5 to 4.2 W over current server generations. The value only scales the saving of a
// hold relative to the other weights.
const nominalWattsPerCore = 4

var (
	// CarbonAlone are the default weights of a policy. They only consider emissions.
	CarbonAlone = Weights{Carbon: 1}
	priceAlone  = Weights{Price: 1}
)

// Weights returns the weights that apply to j. If carbon is excluded for j and no other weight is set, only the
// price is considered.
func (s *Snapshot) Weights(j *Job) Weights {
	w := s.Policy.Weights
	if !j.Limits.NoCarbon {
		return cmp.Or(w, CarbonAlone)
	}
	w.Carbon = 0
	return cmp.Or(w, priceAlone)
}

// CountCarbon reports whether the cost depends on the carbon intensity. If not, no intensity signal is needed.
func (w *Weights) CountCarbon() bool { return w.Carbon != 0 }

// CountPrice reports whether the cost depends on the price of energy. If not, no price signal is needed.
func (w *Weights) CountPrice() bool { return w.Price != 0 }

// Cost returns the weighted cost of an estimate for a job with the given submission time, on a node with the given
// utilisation.
func (w Weights) Cost(e Estimate, submitted time.Time, utilisation float64) float64 {
	c := w.Carbon*float64(e.Carbon) + w.Price*float64(e.Cost) + w.Utilisation*utilisation
	if w.Wait != 0 {
		c += w.Wait * e.Finish.Sub(submitted).Hours()
	}
	return c
}
