package energy

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

// A Fit is an online estimator that separates the idle power of a node from its load-dependent power, based on
// samples of utilisation and power.
//
// It retains the latest samples of each range of utilisation, so that a long period at one load does not evict
// samples at other loads. Periodically it fits a nondecreasing piecewise linear curve to them (see bendRegression).
// The weight of a sample decreases with its age and with its distance from the curve (Tukey's bisquare), so samples
// that include the power of another device are ignored. Idle power is the value of the curve at zero load.
//
// A Fit uses a fixed amount of memory, Add does not allocate, and the result is deterministic. It is not safe for
// concurrent use.
type Fit struct {
	prior *Profile

	bins [curveBins]sampleRing
	seen uint32        // total number of samples added
	mean time.Duration // mean length of the samples

	since       uint32  // the first sample since the last change of the machine
	over, under float32 // fraction of the latest samples above or below the curve, beyond noise

	// result of the last refit
	curve   powerCurve
	shaped  bool    // the curve has a slope
	noise   float64 // standard deviation of a sample, relative to its power
	lo, hi  float64 // known range of the curve
	idle    float64
	settled bool
}

const (
	ringSize = 14

	minPower = 1e-3           // watts; smaller values cannot come from a machine
	longest  = 24 * time.Hour // samples longer than this contain little information about the load and are ignored

	maxPredicted = 1e12 // watts; upper bound of any extrapolation

	changeShare = 0.5      // of the latest samples off the curve to one side: the machine has changed
	changePace  = 1.0 / 16 // weight of the latest sample in that fraction
	changeNoise = 2.5      // minimum distance from the curve, in standard deviations
	changeLeast = 0.015    // minimum distance from the curve, relative to power
)

// A sample stores utilisation in units of 1/65535, as the state does, so that a restored Fit behaves exactly like
// the original.
type sample struct {
	p    float32
	seq  uint32
	load uint16
}

func (s *sample) u() float64 { return float64(s.load) / math.MaxUint16 }

// A sampleRing contains the latest samples of a bin; the oldest is overwritten first.
type sampleRing struct {
	s       [ringSize]sample
	n, next uint8
}

func (r *sampleRing) add(s sample) {
	r.s[r.next] = s
	r.next = (r.next + 1) % ringSize
	r.n = min(r.n+1, ringSize)
}

// at returns the k-th oldest sample.
func (r *sampleRing) at(k uint8) *sample { return &r.s[(r.next+ringSize-r.n+k)%ringSize] }

// genericIdle is the assumed ratio of idle power to full power of a server without a profile. The median of the
// machines published with SPECpower between 2011 and 2026 is between 0.16 and 0.26, depending on the year.
const genericIdle = 0.25

// NewFit returns an empty Fit. The prior is the model of the node's hardware, or nil if there is none. Only the
// shape of the prior is used, not its level, because the profile of a whole machine may be combined with a meter of
// its processors. The prior must not be modified afterwards.
func NewFit(prior *Profile) *Fit {
	f := &Fit{}
	if prior == nil {
		return f
	}
	if idle, full := prior.Power(0), prior.Power(1); idle >= 0 && full > 0 && max(idle, full) <= megawatt {
		f.prior, f.idle = prior, float64(idle)
	}
	return f
}

// Add adds a sample of mean power p at mean utilisation u (0 to 1) over dt. It ignores invalid samples, and samples
// much shorter than usual, which would be dominated by the resolution of the meter.
func (f *Fit) Add(u float64, p Watts, dt time.Duration) {
	if !(u >= 0 && u <= math.MaxFloat64) || !(p >= minPower && p <= megawatt) || dt <= 0 || dt > longest {
		return
	}
	usual := cmp.Or(f.mean, dt)
	f.mean = usual + (min(dt, 2*usual)-usual)/16
	if dt < usual/4 {
		return
	}
	s := sample{p: float32(p), seq: f.seen, load: uint16(math.Round(min(u, 1) * math.MaxUint16))}
	changed := f.detectChange(s)
	f.bins[binOf(s.u())].add(s)
	f.seen++ // overflows after 136 years of seconds
	if changed || f.due() {
		f.refit()
	}
}

// due reports whether to refit now: after every sample at first, and less often as samples accumulate.
func (f *Fit) due() bool {
	switch n := f.seen - f.since; {
	case n <= 16:
		return true
	case n <= 256:
		return n%8 == 0
	case n <= 1024:
		return n%32 == 0
	default:
		return n%64 == 0
	}
}

// detectChange reports whether the machine has changed: most of the latest samples are off the curve, to the same
// side, at loads in the known range of the curve. Earlier samples then have little weight, and idle power is unsettled
// until low loads are observed again. If the load covers its whole range, idle power is correct again within 150
// samples.
func (f *Fit) detectChange(s sample) (changed bool) {
	if u := s.u(); !f.shaped || u < f.lo || u > f.hi {
		return false
	}
	want := f.curve.at(s.u())
	off, far := float64(s.p)-want, max(changeNoise*f.noise, changeLeast)*want
	f.over -= f.over * changePace
	f.under -= f.under * changePace
	switch {
	case off > far:
		f.over += changePace
	case off < -far:
		f.under += changePace
	}
	if max(f.over, f.under) <= changeShare {
		return false
	}
	f.over, f.under = 0, 0
	f.since = s.seq - min(s.seq, 1/changePace)
	return true
}

// Idle returns the power at zero load, and whether the value is settled, that is, known from samples to within
// about 5 %. It is settled once samples exist at loads low enough that the extrapolation to zero load is small
// compared with the slope of the curve. It is unsettled again after a change of the machine until such samples are
// added. A bend below the lowest observed load cannot be detected, so a curve with such a bend may be settled with
// a larger error.
//
// Until the value is settled, it is the best estimate: the prior, or a generic server without one, scaled to the
// power measured at the lowest observed load. As lower loads and a wider range of loads are observed, the weight
// moves to the fitted curve. The value never exceeds the power measured at the lowest load. It is 0 without a prior
// and samples.
func (f *Fit) Idle() (w Watts, settled bool) { return Watts(f.idle), f.settled }

// shape returns the power of the prior at u, in arbitrary units. Without a prior it uses a generic server.
func (f *Fit) shape(u float64) float64 {
	if f.prior != nil {
		return float64(f.prior.Power(u))
	}
	return genericIdle + (1-genericIdle)*u
}

const fitState = 1 // version

// code encodes or decodes the learned state, at most 2.8 kB. A decoded Fit behaves exactly like the encoded one.
// The prior is not part of the state.
func (f *Fit) code(c *codec.Codec) {
	c.Version(fitState)
	codec.Fixed(c, 4, &f.seen)
	codec.Fixed(c, 4, &f.since)
	codec.Fixed(c, 8, &f.mean)
	c.Float32(&f.over)
	c.Float32(&f.under)
	shares := f.over >= 0 && f.over <= 1 && f.under >= 0 && f.under <= 1
	if f.since > f.seen || f.mean < 0 || f.mean > longest || !shares {
		c.Fail()
	}
	if f.seen == 0 || c.Failed() {
		return
	}
	// The result of the last refit is stored because it cannot be recomputed: samples have been added since.
	c.Flags(&f.shaped, &f.settled)
	for _, v := range [...]*float64{&f.noise, &f.lo, &f.hi, &f.idle} {
		c.Float64(v)
	}
	for i := range f.curve {
		c.Float64(&f.curve[i])
	}
	f.codeSamples(c)
}

func (f *Fit) codeSamples(c *codec.Codec) {
	total := uint32(0)
	for i := range f.bins {
		f.bins[i].code(c, i, f.seen)
		total += uint32(f.bins[i].n)
	}
	if c.Reading() && (total == 0 || total > f.seen || !f.plausible()) {
		c.Fail()
	}
}

// plausible reports whether a decoded result could have been produced by a refit.
func (f *Fit) plausible() bool {
	// NaN sorts before all other values.
	return slices.IsSorted(f.curve[:]) && f.curve[0] >= 0 && f.curve[curveBins] <= maxPredicted &&
		f.noise >= minNoise && f.noise <= 2 && f.lo >= 0 && f.lo <= f.hi && f.hi <= 1 &&
		f.idle >= 0 && f.idle <= f.curve.at(f.lo)
}

// code encodes or decodes the samples of a bin, oldest first. The age of a sample is the number of samples added
// since.
func (r *sampleRing) code(c *codec.Codec, bin int, seen uint32) {
	n := r.n
	if c.Byte(&n); n > ringSize {
		c.Fail()
	}
	for k := range n {
		var s sample
		if !c.Reading() {
			s = *r.at(k)
		}
		age := seen - s.seq
		codec.Fixed(c, 2, &s.load)
		c.Float32(&s.p)
		codec.Fixed(c, 4, &age)
		if !c.Reading() {
			continue
		}
		if !(float64(s.p) >= minPower/2 && s.p <= megawatt) || age == 0 || age > seen || binOf(s.u()) != bin {
			c.Fail()
			return
		}
		s.seq = seen - age
		r.add(s)
	}
}
