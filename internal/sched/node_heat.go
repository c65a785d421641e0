package sched

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Heat is the temperature of a node and whether it rejects new jobs because of it. The zero value means that the
// temperature is unknown.
type Heat struct {
	Celsius energy.Celsius `json:"celsius"`
	Limit   energy.Celsius `json:"limitCelsius,omitempty"` // 0 means no limit
	AsOf    time.Time      `json:"asOf"`
	// Hot is true if the temperature exceeded the limit and has not fallen clearly below it since.
	Hot bool `json:"hot,omitempty"`
}

const (
	cooling    = energy.Celsius(5) // an overheated node accepts jobs again at this much below its limit
	heatCounts = 3 * time.Minute
)

// Next returns the heat of a node after a new temperature reading.
func (h Heat) Next(celsius, limit energy.Celsius, at time.Time) Heat {
	hot := celsius > limit || h.fresh(at) && h.Hot && celsius > limit-cooling
	return Heat{Celsius: celsius, Limit: limit, AsOf: at, Hot: limit > 0 && hot}
}

// Refuses reports whether the node rejects new jobs, and the reason. A node with an outdated reading accepts all
// jobs, because missing data must not make a job unschedulable.
func (h Heat) Refuses(now time.Time) (why string, refuses bool) {
	if !h.Hot || !h.fresh(now) {
		return "", false
	}
	return fmt.Sprintf("node overheated: %.0f °C exceeds the limit of %.0f °C, new pods are accepted again at %.0f °C",
		float64(h.Celsius), float64(h.Limit), float64(h.Limit-cooling)), true
}

func (h Heat) fresh(now time.Time) bool { return now.Sub(h.AsOf) <= heatCounts }
