package meter

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A sample is what one channel of a device says at a moment.
type sample struct {
	channel string
	watts   float64
	powered bool // watts is known
	counted bool // there is a counter:

	counts uint64        // its value
	unit   uint64        // what each is, in microjoules
	step   uint64        // the least by which it moves, where power is to fill in between; 0: it is fine enough
	period time.Duration // how long it may stand still because the device does not refresh it
	epoch  string        // another one where the counter began anew
}

// A channel makes readings of samples.
type channel struct {
	domain  energy.Domain
	scale   int64
	factor  float64
	max     energy.Watts
	maxGap  time.Duration
	counter *energy.Counter
	epoch   string
	unit    uint64
	step    uint64 // the finest that was seen: some devices leave out zeros at the end

	integral *energy.Integrator
	filled   filled
	last     energy.Reading // what next returned
}

func newChannel(name string, e *Entry) *channel {
	scale, _ := energy.Millionths(*e.Factor) // check has looked
	return &channel{
		domain: energy.Domain{Kind: energy.Wall, Name: name}, scale: scale, factor: *e.Factor,
		max: energy.Watts(*e.MaxWatts), maxGap: staleAfter(e.Interval.Duration),
	}
}

// next returns the reading that a sample at an instant is. A device whose counter disappears, or counts in other
// units, is another meter: a new run.
func (c *channel) next(s sample, at time.Duration) energy.Reading {
	if !s.counted {
		if c.integral == nil {
			c.integral = energy.NewIntegrator(c.domain, energy.Derived, c.maxGap)
		}
		return c.integral.Next(energy.Watts(s.watts*c.factor), at)
	}
	quality := energy.Measured
	if s.step > 0 && s.powered {
		quality = energy.Derived // between two steps of the counter
	}
	if c.counter == nil || c.unit != s.unit {
		c.counter = energy.NewCounter(energy.CounterOptions{
			Domain: c.domain, Quality: quality, MicrojoulesPerUnit: s.unit, Scale: c.scale, Max: c.max,
			Period: max(s.period, c.slack(s)),
		})
		c.unit, c.step, c.epoch, c.filled = s.unit, s.step, s.epoch, filled{}
	}
	if s.epoch != c.epoch {
		c.counter.Break()
		c.epoch = s.epoch
	}
	r := c.counter.Next(s.counts, at)
	if quality == energy.Measured {
		return r
	}
	c.step = min(c.step, s.step)
	return c.filled.next(r, c.amount(c.unit, c.step), energy.Watts(s.watts*c.factor), at, c.maxGap)
}

// amount is what so many counts of a unit are, or 0.
func (c *channel) amount(unit, counts uint64) energy.Microjoules {
	v, _, _ := energy.NewScale(unit, c.scale).Take(counts)
	return v
}

// slack is in how much time a coarse counter moves by a step, at least: a step at once is no more power than there
// can be.
func (c *channel) slack(s sample) time.Duration {
	return time.Duration(float64(c.amount(s.unit, s.step).Joules()) / float64(c.max) * float64(time.Second))
}

// filled fills the steps of a coarse counter with the integral of power, so that a minute gets what it used and not
// what the counter happened to move. The total is never below the counter and never a whole step above it: over any
// time it is what the counter says, but for one step.
type filled struct {
	last  energy.Reading // of the counter
	at    time.Duration
	power energy.Watts
	part  energy.Microjoules // beyond the counter
	known bool
}

func (f *filled) next(r energy.Reading, step energy.Microjoules, power energy.Watts, at,
	maxGap time.Duration,
) energy.Reading {
	before, dt, fresh := f.last, at-f.at, !f.known || r.Run != f.last.Run
	if !fresh && dt <= 0 {
		return f.reading(f.last)
	}
	mean := (f.power + power) / 2
	f.last, f.at, f.power, f.known = r, at, power, true
	if fresh {
		f.part = 0
		return f.reading(r)
	}
	var grown energy.Microjoules
	if dt <= maxGap {
		grown = mean.For(dt).Microjoules()
	}
	rise := r.Total - before.Total
	due := f.part + grown
	if rise > 0 {
		// It moved somewhere in between: what came after that is no more than came in all. If power disagrees, it is
		// half.
		if due -= rise; due < 0 || due > grown {
			due = grown / 2
		}
	}
	part := min(max(due, 0), max(step-1, 0))
	f.part = max(part, f.part-rise) // it does not fall, also where the device now shows finer steps
	return f.reading(r)
}

// reading is that of the counter with what power says beyond it.
func (f *filled) reading(r energy.Reading) energy.Reading {
	r.At = f.at
	if r.Total <= math.MaxInt64-f.part {
		r.Total += f.part
	}
	return r
}
