package lab

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Clock maps the time of a trace to wall-clock time, Factor times faster. Signals, delays and durations are
// compressed accordingly before they are used in the cluster, so that schedulers run unmodified on the real clock.
type Clock struct {
	Trace  time.Time // this time of the trace …
	Wall   time.Time // … corresponds to this wall-clock time
	Factor float64
}

// ToWall converts a time of the trace to wall-clock time.
func (c Clock) ToWall(trace time.Time) time.Time { return c.Wall.Add(c.Shrink(trace.Sub(c.Trace))) }

// ToTrace converts wall-clock time to a time of the trace.
func (c Clock) ToTrace(wall time.Time) time.Time {
	return c.Trace.Add(time.Duration(float64(wall.Sub(c.Wall)) * c.Factor))
}

// Shrink converts a duration of the trace to a wall-clock duration.
func (c Clock) Shrink(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.Factor)
}

// Profile returns p with the values that are not proportional to time compressed as well, so that a wake-up has the
// same weight relative to a compressed run as in reality.
func (c Clock) Profile(p *energy.Profile) *energy.Profile {
	compressed := *p
	compressed.WakeUp /= energy.Joules(c.Factor)
	compressed.BootSeconds /= c.Factor
	return &compressed
}

// Policy compresses the weights: all terms except utilisation are integrated over compressed time.
func (c Clock) Policy(p sched.Policy) sched.Policy {
	p.Weights.Utilisation /= c.Factor
	p.MaxDelay = c.Shrink(p.MaxDelay)
	return p
}

// Signal returns the part of a signal in [from, until), compressed. The result is a recorded signal without a time
// of issue.
func (c Clock) Signal(s grid.Signal, from, until time.Time) (grid.Signal, error) {
	if s.Series == nil {
		return grid.Signal{}, nil
	}
	part := s.Series.Between(from, until)
	if part == nil {
		return grid.Signal{}, fmt.Errorf("the signal has no value between %s and %s", from.Format(time.RFC3339),
			until.Format(time.RFC3339))
	}
	values := part.Values(0, part.Len())
	series, err := grid.NewSeries(c.ToWall(part.Start()), c.Shrink(part.Step()), values)
	if err != nil {
		return grid.Signal{}, fmt.Errorf("compressing a signal: %w", err)
	}
	return grid.Signal{Series: series, Quality: s.Quality}, nil
}
