package report

import (
	"math"
	"strconv"

	"github.com/kubenergy/kubenergy/internal/humanize"
)

func number(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// roundUp rounds v up to an element of nice, which must be sorted, or 10, times a power of ten. The result may be
// below v by the fraction slip.
func roundUp(v, slip float64, nice ...float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range nice {
		if n*power >= v*(1-slip) {
			return n * power
		}
	}
	return 10 * power
}

func percent(share float64) string {
	if v := 100 * share; v > 0 && v < 0.1 {
		return "<0.1 %"
	}
	return humanize.Fixed(100*share, 1) + " %"
}
