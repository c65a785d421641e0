package energy

import (
	"math"
	"math/bits"
	"time"
)

// An Integrator makes readings of the samples of a power meter: between two samples power is taken to change evenly. It
// calculates in integer microwatts and nanoseconds and carries what is less than a microjoule.
type Integrator struct {
	domain  Domain
	quality Quality
	maxGap  time.Duration
	last    Reading // Raw is the power of the last sample in microwatts, Rest is in half femtojoules

	known, resumed, broken bool
}

// halfFemto is how many half femtojoules, microwatts times nanoseconds over two, make a microjoule.
const halfFemto = 2_000_000_000

// NewIntegrator returns an integrator that has seen nothing. Samples that are further apart than maxGap say nothing
// of the time in between: the later one begins a new run.
func NewIntegrator(domain Domain, quality Quality, maxGap time.Duration) *Integrator {
	return &Integrator{domain: domain, quality: quality, maxGap: maxGap}
}

// Resume goes on from the last reading that a former process took of the same meter on the same boot, if it is one of
// these: those of other domains are ignored. It comes before the first Next.
func (g *Integrator) Resume(last ...Reading) {
	for _, r := range last {
		if !g.known && r.Domain == g.domain && r.Total >= 0 && r.Raw <= megawatt*million && r.Rest < halfFemto {
			g.last, g.known, g.resumed = r, true, true
			g.last.Quality = g.quality
		}
	}
}

// Next returns the reading at an instant at which the meter shows w. Samples that are not later than the last are
// ignored: the last reading comes again. So are samples that are no power, and the next good one begins a new run; a
// meter had better leave such out.
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
	case g.broken, at-g.last.At > g.maxGap, at-g.last.At < 0: // the last is beyond what a duration holds
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

func (g *Integrator) begin(power uint64, at time.Duration, run uint32) Reading {
	total := g.last.Total
	if total > math.MaxInt64/2 {
		total = 0
	}
	g.known, g.broken = true, false
	g.last = Reading{Domain: g.domain, At: at, Total: total, Run: run, Raw: power, Quality: g.quality}
	return g.last
}
