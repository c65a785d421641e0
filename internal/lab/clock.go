package lab

import (
	"fmt"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// Clock maps the time of a trace to that of the wall, Factor times faster. Signals, delays and durations are compressed
// with it before anything in the cluster sees them, so that schedulers run unmodified on the real clock.
type Clock struct {
	Trace  time.Time // this instant of the trace …
	Wall   time.Time // … is this one here
	Factor float64
}

// ToWall returns when an instant of the trace comes.
func (c Clock) ToWall(trace time.Time) time.Time { return c.Wall.Add(c.Shrink(trace.Sub(c.Trace))) }

// ToTrace returns which instant of the trace it is.
func (c Clock) ToTrace(wall time.Time) time.Time {
	return c.Trace.Add(time.Duration(float64(wall.Sub(c.Wall)) * c.Factor))
}

// Shrink returns how long something of the trace lasts here.
func (c Clock) Shrink(d time.Duration) time.Duration {
	return time.Duration(float64(d) / c.Factor)
}

// Profile returns p with what is not proportional to time compressed like time: one wake-up must weigh as much
// against a compressed run as it does against a real one.
func (c Clock) Profile(p *energy.Profile) *energy.Profile {
	compressed := *p
	compressed.WakeUp /= energy.Joules(c.Factor)
	compressed.BootSeconds /= c.Factor
	return &compressed
}

// Policy does the same for weights: all terms but utilisation shrink with the time that they are integrated over.
func (c Clock) Policy(p sched.Policy) sched.Policy {
	p.Weights.Utilisation /= c.Factor
	p.MaxDelay = c.Shrink(p.MaxDelay)
	return p
}

// Signal returns the part of a signal in [from, until), compressed. What it was issued at does not matter: it is
// recorded.
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
