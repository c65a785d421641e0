package energy

import (
	"math"
	"math/bits"
	"time"
)

// CounterOptions describes a cumulative energy counter.
type CounterOptions struct {
	Domain  Domain
	Quality Quality
	// Range is the maximum raw value, in the counter's units, after which the counter wraps around to 0. If it is
	// 0, the counter never wraps.
	Range              uint64
	MicrojoulesPerUnit uint64 // defaults to 1
	Scale              int64  // calibration factor in millionths, as returned by Millionths; defaults to a million
	// Max is the maximum power of the domain after calibration. It must be above 0 and is limited to a megawatt.
	Max Watts
	// Period is the maximum time between two refreshes of the counter by its writer; 0 if the counter is always
	// current.
	Period time.Duration
}

// A Counter converts the raw values of a cumulative counter to readings. Between two values it counts the energy
// used, and it starts a new run if that energy cannot be determined:
//
//   - If a value is below the previous one, the counter has wrapped if it has a Range and Max allows the resulting
//     step. Otherwise the counter was reset.
//   - A step is accepted up to Max times 1.2 over the time since the previous value, plus Period and 20 ms,
//     because a counter is refreshed at its own times.
//   - After a gap in which this limit reaches the whole Range, a wrap may be hidden and the energy is unknown.
//
// A reset that is indistinguishable from a step allowed by Max is counted as a step.
//
// If the value has not changed for at most one and a half times Period, the previous reading is returned again.
type Counter struct {
	run
	o     CounterOptions
	scale Scale
	whole Microjoules // Range, scaled
}

// run is the state that all converters to readings have: the last reading and the start of the next one.
type run struct {
	domain  Domain
	quality Quality
	last    Reading

	known, resumed, broken bool
}

// resume continues from the first valid reading of the domain.
func (r *run) resume(last []Reading, valid func(*Reading) bool) {
	for _, l := range last {
		if !r.known && l.Domain == r.domain && l.Total >= 0 && valid(&l) {
			r.last, r.known, r.resumed = l, true, true
			r.last.Quality = r.quality
		}
	}
}

// begin starts a run with the given number.
func (r *run) begin(raw uint64, at time.Duration, number uint32) Reading {
	total := r.last.Total
	if total > math.MaxInt64/2 {
		total = 0 // prevents an overflow
	}
	r.known, r.broken = true, false
	r.last = Reading{Domain: r.domain, At: at, Total: total, Run: number, Raw: raw, Quality: r.quality}
	return r.last
}

const (
	tolerance   = 1.2
	minSlack    = 20 * time.Millisecond
	holdPeriods = 3 // halves of a Period
)

// NewCounter returns a counter without readings.
func NewCounter(o CounterOptions) *Counter {
	c := &Counter{
		run: run{domain: o.Domain, quality: o.Quality}, o: o, scale: NewScale(o.MicrojoulesPerUnit, o.Scale),
		whole: math.MaxInt64,
	}
	if whole, _, ok := c.scale.Take(o.Range); ok {
		c.whole = whole
	}
	return c
}

// Resume continues from the last reading of the same counter by a previous process on the same boot, if last
// contains it. Readings of other domains are ignored. It must be called before the first Next.
func (c *Counter) Resume(last ...Reading) {
	c.resume(last, func(*Reading) bool { return true })
	c.scale.rest = min(c.last.Rest, million-1)
}

// Break makes the next reading start a new run.
func (c *Counter) Break() { c.broken = true }

// Next returns the reading for a raw value at the given time. A value that is not later than the previous one is
// ignored and the last reading is returned again.
func (c *Counter) Next(raw uint64, at time.Duration) Reading {
	resumed := c.resumed
	c.resumed = false
	switch {
	case !c.known, resumed && at < c.last.At: // resumed from a later time, i.e. from another boot
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

func (c *Counter) begin(raw uint64, at time.Duration, number uint32) Reading {
	c.scale.rest = 0
	return c.run.begin(raw, at, number)
}

// firstRun returns the number of the first run of a process. It is derived from the time so that it differs from
// the runs of a previous process of the same boot, provided that the process started fewer than one run per
// millisecond. Readings of the previous process are then never mistaken for readings of this run.
func firstRun(at time.Duration) uint32 { return uint32(at / time.Millisecond) }

// step returns the energy used since the last value, and false if it is unknown.
func (c *Counter) step(raw uint64, dt time.Duration) (Microjoules, Scale, bool) {
	if dt <= 0 { // exceeds the range of time.Duration
		return 0, c.scale, false
	}
	most, units := c.most(dt), raw-c.last.Raw
	if c.o.Range > 0 && (raw > c.o.Range || c.last.Raw > c.o.Range || most >= c.whole) { // a wrap may be hidden
		return 0, c.scale, false
	}
	if raw < c.last.Raw {
		if c.o.Range == 0 {
			return 0, c.scale, false
		}
		units += c.o.Range + 1 // modulo 2⁶⁴, so this is also correct for a Range of 64 bits
	}
	step, scale, ok := c.scale.Take(units)
	return step, scale, ok && step <= most
}

// most returns the maximum energy that is plausible in dt, with slack for the refresh period of the counter.
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
