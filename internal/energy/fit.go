package energy

import (
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/codec"
)

// A Fit learns online which power a node draws anyway, and which because it works, from pairs of utilisation and power.
//
// It keeps the latest samples of each range of utilisation, so that a long time at one load does not push out what was
// seen at others, and every few samples fits to them a curve of straight pieces (see bendRegression) that never falls,
// with weights that fall with a sample's age and with its distance from the curve (Tukey's bisquare: a sample that
// another device's power was added to counts nothing). Idle power is that curve's value at no load.
//
// Its memory is fixed, Add allocates nothing, and the same samples give the same result. A Fit is for one goroutine.
type Fit struct {
	prior *Profile

	bins [curveBins]sampleRing
	seen uint32        // how many samples were ever added
	mean time.Duration // between samples: how long they usually are

	since       uint32  // the sample since which the machine is as it is
	over, under float32 // share of the latest samples that lay above or below the curve, beyond noise

	// what the samples say, as of the last refit
	curve   powerCurve
	shaped  bool    // the curve has a slope
	noise   float64 // standard deviation of a sample, in parts of its power
	lo, hi  float64 // between which utilisations the curve is known
	idle    float64
	settled bool
}

const (
	ringSize = 14

	minPower = 1e-3           // watts: what draws less is no machine
	longest  = 24 * time.Hour // a mean over more says nothing of any load

	maxPredicted = 1e12 // watts: where lines through any samples stay below, for sure

	changeShare = 0.5      // of the latest samples off the curve to one side: the machine is not what it was
	changePace  = 1.0 / 16 // how much of that share the latest sample decides
	changeNoise = 2.5      // standard deviations: less is not off the curve
	changeLeast = 0.015    // nor is less than this part of power
)

// A sample's utilisation is kept in 65535ths, as in the state, so that a restored Fit is the same as one that ran on.
type sample struct {
	p    float32
	seq  uint32
	load uint16
}

func (s *sample) u() float64 { return float64(s.load) / math.MaxUint16 }

// A sampleRing holds the latest samples of a bin; the oldest is overwritten first.
type sampleRing struct {
	s       [ringSize]sample
	n, next uint8
}

func (r *sampleRing) add(s sample) {
	r.s[r.next] = s
	r.next = (r.next + 1) % ringSize
	r.n = min(r.n+1, ringSize)
}

// at returns a sample by age, the oldest first.
func (r *sampleRing) at(k uint8) *sample { return &r.s[(r.next+ringSize-r.n+k)%ringSize] }

// genericIdle is the share of its full power that a server draws at no load, where nothing else is known: the median of
// the machines published with SPECpower between 2011 and 2026 is between 0.16 and 0.26, by year.
const genericIdle = 0.25

// NewFit returns a Fit that has seen nothing. The prior is the model of the node's hardware, nil if there is none; of
// it, the shape is used rather than the level, because a profile of a whole machine may meet a meter of its
// processors. It is not changed and must stay unchanged.
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

// Add takes a sample: mean power p at mean utilisation u (0 to 1) over dt. What cannot be a sample is ignored, and so
// is one much shorter than usual, in which the meter's resolution would be most of it.
func (f *Fit) Add(u float64, p Watts, dt time.Duration) {
	if !(u >= 0 && u <= math.MaxFloat64) || !(p >= minPower && p <= megawatt) || dt <= 0 || dt > longest {
		return
	}
	if f.mean == 0 {
		f.mean = dt
	}
	usual := f.mean
	f.mean += (min(dt, 2*usual) - usual) / 16
	if dt < usual/4 {
		return
	}
	s := sample{p: float32(p), seq: f.seen, load: uint16(math.Round(min(u, 1) * math.MaxUint16))}
	changed := f.detectChange(s)
	f.bins[binOf(s.u())].add(s)
	f.seen++ // for 136 years of seconds
	if changed || f.due() {
		f.refit()
	}
}

// due says when to fit: at once as long as there is little, seldom when a sample changes little.
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

// detectChange finds out that the machine changed: most of the latest samples are off the curve, to one side, at loads
// at which the curve was known. What was learned before then counts little, and idle power is unsettled until low loads
// were seen again. If load visits all of its range, idle power is right again within 150 samples.
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

// Idle returns the power at no load, and if it is settled: known from samples, to about 5 %. It is settled once there
// were samples at loads so low that what lies between them and none hardly matters, relative to what load costs; and
// no more once the machine was found to have changed, until such samples came again. Nothing can tell of bends below
// the least load seen, so a curve that has one there may be settled and off by more.
//
// Until it is settled it is the best there is: what the prior, or without it a server of which nothing is known,
// would draw at no load if it drew what was measured at the least load seen. As lower loads and a wider range of
// loads are seen, the weight moves to what the fitted curve says. It is never above the power measured at the least
// load. Without prior and samples it is 0.
func (f *Fit) Idle() (w Watts, settled bool) { return Watts(f.idle), f.settled }

// shape returns the power of the prior at u, of a server in general if there is none, on a scale of its own.
func (f *Fit) shape(u float64) float64 {
	if f.prior != nil {
		return float64(f.prior.Power(u))
	}
	return genericIdle + (1-genericIdle)*u
}

const fitState = 1 // version

// code writes all that was learned, 2.8 kB at most, or reads it: a Fit that was read goes on as the one that was
// written. The prior is no part of it.
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
	// The result of the last refit: the samples have changed since, so that it can't be had from them.
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

// plausible reports whether a result that was read is one that a refit can have.
func (f *Fit) plausible() bool {
	// What is no number comes first in order.
	return slices.IsSorted(f.curve[:]) && f.curve[0] >= 0 && f.curve[curveBins] <= maxPredicted &&
		f.noise >= minNoise && f.noise <= 2 && f.lo >= 0 && f.lo <= f.hi && f.hi <= 1 &&
		f.idle >= 0 && f.idle <= f.curve.at(f.lo)
}

// code codes the samples of a bin, the oldest first, each with how many were added since it was.
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
