package energy

import (
	"math"
	"math/bits"
	"time"
)

// CounterOptions say what a counter counts.
type CounterOptions struct {
	Domain  Domain
	Quality Quality
	// the highest value, after which the counter goes on at 0, in its own units; 0: it never wraps
	Range              uint64
	MicrojoulesPerUnit uint64 // 0 reads as 1
	Scale              int64  // calibration factor in millionths, as Millionths returns it; 0 reads as a million
	// the most that the domain can draw, after calibration: must be above 0; more than a megawatt counts as one
	Max Watts
	// how long the counter may stand still because its writer has not refreshed it; 0: it is always current
	Period time.Duration
}

// A Counter makes readings of the raw values of a cumulative counter. Between two values it counts what must have been
// used, and where that cannot be known begins a new run:
//
//   - A value below the last one is a wrap if the counter has a Range and the step over it is one that Max allows.
//     Otherwise the counter was reset.
//   - A step is believed up to Max times 1.2 over the time since the last value, plus Period and 20 ms, because a
//     counter is refreshed at instants of its own.
//   - After a gap in which that would be the whole Range, a wrap may hide: nothing is known.
//
// What no rule can see: a reset that looks like a step which Max allows is counted as one.
//
// A value that stands still for no longer than one and a half times Period is the old reading again.
type Counter struct {
	o     CounterOptions
	scale Scale
	whole Microjoules // Range, scaled
	last  Reading

	known, resumed, broken bool
}

const (
	tolerance   = 1.2
	minSlack    = 20 * time.Millisecond
	holdPeriods = 3 // halves of a Period
)

// NewCounter returns a counter that has seen nothing.
func NewCounter(o CounterOptions) *Counter {
	c := &Counter{o: o, scale: NewScale(o.MicrojoulesPerUnit, o.Scale), whole: math.MaxInt64}
	if whole, _, ok := c.scale.Take(o.Range); ok {
		c.whole = whole
	}
	return c
}

// Resume goes on from the last reading that a former process took of the same counter on the same boot, if it is one of
// these: those of other domains are ignored. It comes before the first Next.
func (c *Counter) Resume(last ...Reading) {
	for _, r := range last {
		if !c.known && r.Domain == c.o.Domain && r.Total >= 0 {
			c.last, c.known, c.resumed = r, true, true
			c.last.Quality = c.o.Quality
			c.scale.rest = min(r.Rest, million-1)
		}
	}
}

// Break makes the next reading begin a new run.
func (c *Counter) Break() { c.broken = true }

// Next returns the reading that a raw value at an instant is. Values that are not later than the last are ignored: the
// last reading comes again.
func (c *Counter) Next(raw uint64, at time.Duration) Reading {
	resumed := c.resumed
	c.resumed = false
	switch {
	case !c.known, resumed && at < c.last.At: // resumed from a later time: it was another boot's
		return c.begin(raw, at, firstRun(at))
	case at <= c.last.At:
		return c.last
	case c.broken:
		return c.begin(raw, at, c.last.Run+1)
	case raw == c.last.Raw && at-c.last.At <= c.o.Period/2*holdPeriods:
		return c.last
	}
	step, scale, ok := c.step(raw, at-c.last.At)
	if !ok || c.last.Total > math.MaxInt64-step {
		return c.begin(raw, at, c.last.Run+1)
	}
	c.scale = scale
	c.last.At, c.last.Raw, c.last.Rest = at, raw, scale.rest
	c.last.Total += step
	return c.last
}

func (c *Counter) begin(raw uint64, at time.Duration, run uint32) Reading {
	total := c.last.Total
	if total > math.MaxInt64/2 {
		total = 0 // leaves room
	}
	c.known, c.broken, c.scale.rest = true, false, 0
	c.last = Reading{Domain: c.o.Domain, At: at, Total: total, Run: run, Raw: raw, Quality: c.o.Quality}
	return c.last
}

// firstRun numbers the first run of a process such that a former process of the same boot, which broke off less than
// once a millisecond, did not use the number: its readings are then never mistaken for ones of this run.
func firstRun(at time.Duration) uint32 { return uint32(at / time.Millisecond) }

// step returns what was used since the last value, and false if that is not known.
func (c *Counter) step(raw uint64, dt time.Duration) (Microjoules, Scale, bool) {
	if dt <= 0 { // beyond what a duration holds
		return 0, c.scale, false
	}
	most, units := c.most(dt), raw-c.last.Raw
	if c.o.Range > 0 && (raw > c.o.Range || c.last.Raw > c.o.Range || most >= c.whole) { // a wrap may hide
		return 0, c.scale, false
	}
	if raw < c.last.Raw {
		if c.o.Range == 0 {
			return 0, c.scale, false
		}
		units += c.o.Range + 1 // modulo 2⁶⁴, so this holds of a Range of 64 bits too
	}
	step, scale, ok := c.scale.Take(units)
	return step, scale, ok && step <= most
}

// most returns what is believed to be used in dt at most, with the slack that a counter's own pace needs.
func (c *Counter) most(dt time.Duration) Microjoules {
	w, slack := min(max(c.o.Max, 0), megawatt)*tolerance, max(c.o.Period, minSlack)
	if dt > math.MaxInt64-slack {
		return math.MaxInt64
	}
	hi, lo := bits.Mul64(uint64(float64(w)*1e6), uint64(dt+slack))
	if hi >= uint64(time.Second) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(time.Second)) // microwatts times nanoseconds
	return Microjoules(min(q, math.MaxInt64))
}
