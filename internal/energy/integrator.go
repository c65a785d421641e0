package energy

import (
	"math"
	"math/bits"
	"time"
)

// An Integrator converts the samples of a power meter to readings. It assumes that power changes linearly between
// two samples. It calculates in integer microwatts and nanoseconds and carries remainders of less than a
// microjoule.
type Integrator struct {
	run    // Raw is the power of the last sample in microwatts, Rest is in half femtojoules
	maxGap time.Duration
}

// halfFemto is the number of half femtojoules in a microjoule. A half femtojoule is a microwatt times a nanosecond,
// divided by two.
const halfFemto = 2_000_000_000

// NewIntegrator returns an empty integrator. If two samples are more than maxGap apart, the energy between them is
// unknown and the later one starts a new run.
func NewIntegrator(domain Domain, quality Quality, maxGap time.Duration) *Integrator {
	return &Integrator{run: run{domain: domain, quality: quality}, maxGap: maxGap}
}

// Resume continues from the last reading of the same meter by a previous process on the same boot, if last contains
// it. Readings of other domains are ignored. It must be called before the first Next.
func (g *Integrator) Resume(last ...Reading) {
	g.resume(last, func(r *Reading) bool { return r.Raw <= megawatt*million && r.Rest < halfFemto })
}

// Next returns the reading for a sample of power w at the given time. A sample that is not later than the previous
// one is ignored and the last reading is returned again. An invalid sample is ignored too, and the next valid one
// starts a new run; meters should omit invalid samples.
func (g *Integrator) Next(w Watts, at time.Duration) Reading {
	good := w >= 0 && w <= megawatt // NaN is neither
	resumed := g.resumed
	g.resumed = false
	if !good {
		if !g.known {
			g.begin(0, at, firstRun(at))
		}
		g.broken = true
		return g.last
	}
	power := uint64(math.RoundToEven(float64(w) * million))
	switch {
	case !g.known, resumed && at < g.last.At:
		return g.begin(power, at, firstRun(at))
	case at <= g.last.At:
		return g.last
	case g.broken, at-g.last.At > g.maxGap, at-g.last.At < 0: // the difference exceeds the range of time.Duration
		return g.begin(power, at, g.last.Run+1)
	}
	hi, lo := bits.Mul64(g.last.Raw+power, uint64(at-g.last.At))
	lo, carry := bits.Add64(lo, g.last.Rest, 0)
	hi += carry
	if hi >= halfFemto {
		return g.begin(power, at, g.last.Run+1)
	}
	used, rest := bits.Div64(hi, lo, halfFemto)
	if used > uint64(math.MaxInt64-g.last.Total) {
		return g.begin(power, at, g.last.Run+1)
	}
	g.last.Total += Microjoules(used)
	g.last.At, g.last.Raw, g.last.Rest = at, power, rest
	return g.last
}
