package sched

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Heat is how hot a node is, and whether it takes jobs. The zero Heat is not known.
type Heat struct {
	Celsius energy.Celsius `json:"celsius"`
	Limit   energy.Celsius `json:"limitCelsius,omitempty"` // 0: none
	AsOf    time.Time      `json:"asOf"`
	// Hot says that it was above its limit, and has not been well below since.
	Hot bool `json:"hot,omitempty"`
}

const (
	cooling    = energy.Celsius(5) // below its limit, a node that was too hot takes jobs again
	heatCounts = 3 * time.Minute
)

// Next returns the heat of a node once it is read again.
func (h Heat) Next(celsius, limit energy.Celsius, at time.Time) Heat {
	hot := celsius > limit || h.fresh(at) && h.Hot && celsius > limit-cooling
	return Heat{Celsius: celsius, Limit: limit, AsOf: at, Hot: limit > 0 && hot}
}

// Refuses reports whether the node takes no jobs, and why. One whose temperature was read too long ago takes all: what
// is not known must not make a job unschedulable.
func (h Heat) Refuses(now time.Time) (why string, refuses bool) {
	if !h.Hot || !h.fresh(now) {
		return "", false
	}
	return fmt.Sprintf("is too hot, %.0f °C: the limit is %.0f °C, and it takes pods again at %.0f °C",
		float64(h.Celsius), float64(h.Limit), float64(h.Limit-cooling)), true
}

func (h Heat) fresh(now time.Time) bool { return now.Sub(h.AsOf) <= heatCounts }
