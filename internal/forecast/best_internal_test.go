package forecast

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
)

// TestMeanErrorsAreThoseOfARollingBacktest compares the errors for choosing a model with the errors over all
// origins and leads.
func TestMeanErrorsAreThoseOfARollingBacktest(t *testing.T) {
	noise := rand.New(rand.NewPCG(4, 2))
	values := make([]float64, 24*20)
	for i := range values {
		values[i] = 300 + 100*math.Sin(float64(i)/4) + 30*noise.NormFloat64()
	}
	s, err := grid.NewSeries(time.Unix(0, 0), time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	p, err := newPast(s, s.End(), memory)
	if err != nil {
		t.Fatal(err)
	}
	test := newTest(p)
	for d := range 3 {
		first := test.firstFair(d)
		got := test.meanErrors(d, first)
		var want [models]mean
		for known := 1; known < len(values); known++ {
			for lead := d * 24; lead < (d+1)*24; lead++ {
				i := known + lead
				if i < first || i >= len(values) {
					continue
				}
				for m := range models {
					if model(m) == persistence || known >= p.perDay {
						want[m].add(math.Abs(values[i]-p.at(model(m), known, lead)) / values[i])
					}
				}
			}
		}
		for m := range models {
			allowed := 1e-9
			if model(m) == persistence { // evaluated at some leads only
				allowed = 0.1 * want[m].value()
			}
			if math.Abs(got[m]-want[m].value()) > allowed {
				t.Errorf("%s, %d days ahead: mean error = %v, want %v", names[m], d, got[m], want[m].value())
			}
		}
	}
}

// TestAPanicInParallelIsTheCallers checks that a panic in a goroutine is passed to the caller, which may recover.
func TestAPanicInParallelIsTheCallers(t *testing.T) {
	defer func() {
		if what := fmt.Sprint(recover()); !strings.HasPrefix(what, "planted") || !strings.Contains(what, "best_internal_test") {
			t.Errorf("recovered panic = %s", what)
		}
	}()
	_ = inParallel(0, 8, func(i int) error {
		if i == 3 {
			panic("planted")
		}
		return nil
	})
}
