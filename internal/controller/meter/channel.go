package meter

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A sample contains the values of a channel at a point in time.
type sample struct {
	channel string
	watts   float64
	powered bool // watts is valid
	counted bool // the following fields are valid

	counts uint64        // value of the counter
	unit   uint64        // microjoules per count
	step   uint64        // resolution in counts if power is to be used for interpolation; 0 if fine enough
	period time.Duration // refresh interval of the device, during which the counter may not change
	epoch  string        // changes when the counter is reset
}

// A channel converts samples to readings.
type channel struct {
	domain  energy.Domain
	scale   int64
	factor  float64
	max     energy.Watts
	maxGap  time.Duration
	counter *energy.Counter
	epoch   string
	unit    uint64
	step    uint64 // finest observed step, because some devices omit trailing zeros

	integral *energy.Integrator
	filled   filled
	last     energy.Reading // last result of next
}

func newChannel(name string, e *Entry) *channel {
	scale, _ := energy.Millionths(*e.Factor) // validated by Check
	return &channel{
		domain: energy.Domain{Kind: energy.Wall, Name: name}, scale: scale, factor: *e.Factor,
		max: energy.Watts(*e.MaxWatts), maxGap: staleAfter(e.Interval.Duration),
	}
}

// next returns the reading for a sample at a point in time. If the counter disappears or changes its unit, a new
// run starts.
func (c *channel) next(s sample, at time.Duration) energy.Reading {
	if !s.counted {
		if c.integral == nil {
			c.integral = energy.NewIntegrator(c.domain, energy.Derived, c.maxGap)
		}
		return c.integral.Next(energy.Watts(s.watts*c.factor), at)
	}
	quality := energy.Measured
	if s.step > 0 && s.powered {
		quality = energy.Derived // interpolated between two steps of the counter
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

// amount returns the energy of the given number of counts, or 0 if it overflows.
func (c *channel) amount(unit, counts uint64) energy.Microjoules {
	v, _, _ := energy.NewScale(unit, c.scale).Take(counts)
	return v
}

// slack returns the minimum time for a coarse counter to increase by one step at the maximum power. It prevents a
// single step from being rejected as implausible.
func (c *channel) slack(s sample) time.Duration {
	return time.Duration(float64(c.amount(s.unit, s.step).Joules()) / float64(c.max) * float64(time.Second))
}

// filled interpolates a coarse counter with the integral of power, so that the energy of short intervals is not
// determined by the steps of the counter. The total is never less than the counter and exceeds it by less than one
// step, so over any interval it differs from the counter by at most one step.
type filled struct {
	last  energy.Reading // reading of the counter
	at    time.Duration
	power energy.Watts
	part  energy.Microjoules // energy added to the counter
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
		// The counter has increased at an unknown time. The energy since then is at most the energy of the whole
		// interval. If the power is inconsistent with that, assume half of it.
		if due -= rise; due < 0 || due > grown {
			due = grown / 2
		}
	}
	part := min(max(due, 0), max(step-1, 0))
	f.part = max(part, f.part-rise) // the total never decreases, even if the device now reports finer steps
	return f.reading(r)
}

// reading returns the reading of the counter plus the interpolated part.
func (f *filled) reading(r energy.Reading) energy.Reading {
	r.At = f.at
	if r.Total <= math.MaxInt64-f.part {
		r.Total += f.part
	}
	return r
}
