package report_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/report"
)

// extremes are numbers at the limits of floating-point arithmetic.
var extremes = []float64{
	0, 1, -1, 5e-324, -5e-324, 1e-300, 1e300, math.MaxFloat64, -math.MaxFloat64, math.Inf(1), math.Inf(-1), math.NaN(),
}

func drawnFloat() *rapid.Generator[float64] {
	return rapid.OneOf(rapid.Float64(), rapid.SampledFrom(extremes), rapid.Float64Range(-1e6, 1e6))
}

// TestTicksOfAnything checks that any axis has a limited number of ticks, and that an axis of numbers has at least
// one.
func TestTicksOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lo, hi := drawnFloat().Draw(t, "lo"), drawnFloat().Draw(t, "hi")
		ticks := report.NumberTicks(lo, hi)
		if len(ticks) == 0 || len(ticks) > 8 {
			t.Errorf("NumberTicks(%g, %g) has %d ticks", lo, hi, len(ticks))
		}
		for i, tick := range ticks[1:] {
			if !(tick.Value > ticks[i].Value) {
				t.Errorf("NumberTicks(%g, %g): tick %g follows %g", lo, hi, tick.Value, ticks[i].Value)
			}
		}
		start := time.Unix(rapid.Int64Range(-1<<40, 1<<40).Draw(t, "start"), 0).UTC()
		for _, span := range []float64{hi, hi - lo} {
			marks := report.TimeTicks(start, span)
			if len(marks) > 9 {
				t.Errorf("%g s from %v have %d ticks", span, start, len(marks))
			}
			for _, mark := range marks {
				if !(mark.Value >= 0 && mark.Value <= span) {
					t.Errorf("%g s from %v have a tick at %g", span, start, mark.Value)
				}
			}
		}
	})
}
