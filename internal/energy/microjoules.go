package energy

import (
	"math"
)

// Microjoules is an exact amount of energy. It is the unit of counters and of all accounting. Its range is 2.5 GWh,
// which is 290 years of a node at one kilowatt.
type Microjoules int64

// Joules converts u to floating-point joules; amounts above 9 GJ lose precision below a microjoule.
func (u Microjoules) Joules() Joules { return Joules(u) / 1e6 }

// Microjoules rounds j to the nearest microjoule. Values out of range are clamped and NaN becomes 0.
func (j Joules) Microjoules() Microjoules {
	v := math.RoundToEven(float64(j) * 1e6)
	switch {
	case math.IsNaN(v):
		return 0
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	}
	return Microjoules(v)
}

// String formats u as joules or kilowatt-hours.
func (u Microjoules) String() string { return u.Joules().String() }
