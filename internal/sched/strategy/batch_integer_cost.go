package strategy

import (
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/mincost"
)

// costScale makes integers of costs.
type costScale float64

// finest is the scale of costs that are at most 16 either way, as those of ECSched are: they lie between −3 and 0
// where nodes have no more free than they have. A unit is far below what could tell two of them apart.
const finest costScale = 1 << 36

// outlying is how many times the median a cost may be until it counts as no greater than that. It leaves 2²⁶ units
// for the median.
const outlying = 1 << 14

// scaleOf returns a scale for costs, of which those that are no number do not count. A few that are beyond all
// measure are clamped; the others remain as distinct as they were.
func scaleOf(costs []float64) costScale {
	sizes := make([]float64, 0, len(costs))
	greatest := 0.0
	for _, c := range costs {
		if c = math.Abs(c); c > 0 { // neither 0 nor NaN
			sizes = append(sizes, c)
			greatest = max(greatest, c)
		}
	}
	if greatest <= mincost.MaxCost/float64(finest) {
		return finest
	}
	slices.Sort(sizes)
	greatest = min(greatest, max(1, sizes[len(sizes)/2]*outlying), math.MaxFloat64)
	return costScale(mincost.MaxCost / greatest)
}

// integer returns a cost in units of the scale.
func (s costScale) integer(cost float64) int64 {
	return int64(math.Round(min(max(cost*float64(s), -mincost.MaxCost), mincost.MaxCost)))
}
