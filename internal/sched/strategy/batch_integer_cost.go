package strategy

import (
	"math"
	"slices"

	"github.com/kubenergy/kubenergy/internal/mincost"
)

// costScale is a factor for converting costs to integers.
type costScale float64

// finest is the scale for costs with an absolute value of at most 16. This includes the costs of ECSched, which are
// between −3 and 0 if the free resources do not exceed the capacity. One unit is much smaller than any relevant
// difference between two costs.
const finest costScale = 1 << 36

// outlying is the maximum cost relative to the median. Higher costs are clamped. It leaves 2²⁶ units for the
// median.
const outlying = 1 << 14

// scaleOf returns a scale for the given costs, ignoring NaN. Extreme outliers are clamped, and all other costs
// remain distinct.
func scaleOf(costs []float64) costScale {
	sizes := make([]float64, 0, len(costs))
	greatest := 0.0
	for _, c := range costs {
		if c = math.Abs(c); c > 0 { // excludes 0 and NaN
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
