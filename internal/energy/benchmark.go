package energy

import (
	"errors"
	"fmt"
	"math"
)

// Benchmark is the result of one node for one class of work, with the power measured at its plug.
type Benchmark struct {
	Rate  float64 `json:"rate"`      // work per time, in any unit common to all nodes of a class
	Power Watts   `json:"watts"`     // while the work runs
	Idle  Watts   `json:"idleWatts"` // without work
}

// UnmarshalJSON decodes a benchmark and rejects unknown fields.
func (b *Benchmark) UnmarshalJSON(text []byte) error {
	type plain Benchmark
	if err := strictly(text, (*plain)(b)); err != nil {
		return fmt.Errorf("reading benchmark: %w", err)
	}
	return b.Validate()
}

// Validate returns an error that lists every problem of b. A loaded power below the idle power is accepted, because
// the two are measured separately and work that hardly loads a node may appear below idle.
func (b *Benchmark) Validate() error {
	var all faults
	all.add(!(b.Rate > 0) || math.IsInf(b.Rate, 0), "rate is %v: want a finite number above 0", b.Rate)
	all.add(!(b.Power > 0 && b.Power <= megawatt), "watts is %v: want more than 0 and at most a megawatt",
		float64(b.Power))
	all.add(!(b.Idle >= 0 && b.Idle <= megawatt), "idleWatts is %v: want 0 or more and at most a megawatt",
		float64(b.Idle))
	return all.of("benchmark")
}

// faults collects the problems of a value.
type faults []error

// add records a problem if wrong.
func (f *faults) add(wrong bool, format string, args ...any) {
	if wrong {
		*f = append(*f, fmt.Errorf(format, args...))
	}
}

// of returns the problems as one error with a prefix, or nil if there are none.
func (f faults) of(format string, args ...any) error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), errors.Join(f...))
}
