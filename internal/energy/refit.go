package energy

import (
	"cmp"
	"math"
	"slices"
)

const (
	memory     = 256.0    // age in samples of the minimum weight; the weight is one half at half of this age
	minAge     = 1.0 / 4  // minimum weight by age
	distrust   = 1.0 / 32 // factor on the weight of samples from before a change of the machine
	startNoise = 0.01     // of the medians of bins, relative to power
	minNoise   = 0.002    // lower bound of the noise estimate
	bisquare   = 4.685    // Tukey's constant: 95 % efficient on Gaussian noise
	passes     = 4        // number of reweighting passes
	startReach = 0.04     // minimum noise in the first pass, relative to power; halved in each following pass

	supportRank  = 3 // the curve is known from about the third lowest to the third highest sample
	envelopeRank = 3 // bins with fewer samples are excluded from the envelope

	settledAfter = 48   // minimum number of samples since the machine last changed
	settledKept  = 12   // minimum number of these samples that are near the curve and still stored
	settledError = 0.05 // relative to idle power
	settledLow   = 0.25 // maximum utilisation from which idle power can be extrapolated reliably
	idleLoad     = 0.01 // maximum utilisation of an idle node

	minSpan = 1e-3 // minimum range of utilisations to fit a slope

	// The curve may have a bend in the unobserved range. Below a utilisation of u, the fitted difference between
	// the power at u and at zero load may be off by a fraction of bendDoubt·u.
	bendDoubt = 2.5

	// Uncertainty of the shape of a profile, and of a generic server, relative to the difference between the power
	// at the lowest load and at zero load. Both double after priorDecay samples at low loads.
	profileDoubt = 0.4
	genericDoubt = 1.0
	priorDecay   = 16.0
)

// A weighed sample is a sample with its weights in a refit.
type weighed struct {
	u, p float64
	age  float64 // weight by age
	w    float64 // weight by age and distance from the curve
	bin  int
	late bool // since the machine last changed
}

// refit fits the curve to all samples. The result depends only on the samples, not on the previous curve.
func (f *Fit) refit() {
	var all [curveBins * ringSize]weighed
	var reg bendRegression
	samples := all[:f.weigh(&all)]
	f.start(&reg, samples)
	for pass := range passes {
		f.noise = f.spread(samples)
		reach := bisquare * max(f.noise, startReach/float64(int(1)<<pass))
		var bins [curveBins]moments
		for i := range samples {
			s := &samples[i]
			want := f.curve.within(s.bin, s.u)
			s.w = 0
			if x := (s.p - want) / (want * reach); x > -1 && x < 1 {
				s.w = s.age * (1 - x*x) * (1 - x*x)
				bins[s.bin].add(1, s.w/(want*want), s.u, s.p)
			}
		}
		reg.sum(&bins)
		if !(reg.tail[0].w > 0) {
			break
		}
		f.shaped = reg.run(f.noise * f.noise)
		f.curve = reg.curve()
	}
	f.conclude(samples, f.noise*math.Sqrt(reg.interceptVariance()))
}

// weigh fills all with the samples, ordered by bin and age, and returns their number.
func (f *Fit) weigh(all *[curveBins * ringSize]weighed) (n int) {
	for b := range f.bins {
		ring := &f.bins[b]
		for k := range ring.n {
			s := ring.at(k)
			w := weighed{u: s.u(), p: float64(s.p), bin: b, late: s.seq >= f.since}
			w.age = max(minAge, 1-float64(f.seen-s.seq)/memory)
			if !w.late {
				w.age *= distrust
			}
			all[n] = w
			n++
		}
	}
	return n
}

// start fits a curve to the lower medians of the bins, which are robust against a minority of outliers.
func (f *Fit) start(reg *bendRegression, samples []weighed) {
	var bins [curveBins]moments
	for len(samples) > 0 {
		n := 1
		for n < len(samples) && samples[n].bin == samples[0].bin {
			n++
		}
		bin := samples[:n]
		samples = samples[n:]
		mass, u := 0.0, 0.0
		for i := range bin {
			mass += bin[i].age
			u += bin[i].age * bin[i].u
		}
		p := lowerMedian(bin, func(s weighed) float64 { return s.p })
		bins[bin[0].bin].add(float64(n), mass/(p*p), u/mass, p)
	}
	reg.sum(&bins)
	f.shaped = reg.run(startNoise * startNoise)
	f.curve = reg.curve()
}

// lowerMedian returns the lowest value such that the samples up to it have at least half of the weight by age.
func lowerMedian(samples []weighed, value func(weighed) float64) float64 {
	var all [curveBins * ringSize]struct{ v, w float64 }
	sorted, left := all[:len(samples)], 0.0
	for i := range samples {
		sorted[i].v, sorted[i].w = value(samples[i]), samples[i].age
		left += samples[i].age / 2
	}
	slices.SortFunc(sorted, func(a, b struct{ v, w float64 }) int { return cmp.Compare(a.v, b.v) })
	for _, s := range sorted {
		if left -= s.w; left <= 0 {
			return s.v
		}
	}
	return sorted[len(sorted)-1].v
}

// spread estimates the noise from the median distance of the samples from the curve, relative to power.
func (f *Fit) spread(samples []weighed) float64 {
	median := lowerMedian(samples, func(s weighed) float64 {
		if off := math.Abs(s.p/f.curve.within(s.bin, s.u) - 1); off < 1 {
			return off
		}
		return 1 // also if the curve is 0
	})
	return max(1.4826*median, minNoise)
}

// conclude derives idle power and its certainty from the curve. deviation is the standard error of the curve's
// value at zero load. The idle powers of the curve and of the prior are averaged, weighted by their certainty.
func (f *Fit) conclude(samples []weighed, deviation float64) {
	f.lo, f.hi = support(samples, false)
	lo, _ := support(samples, true)
	late, low := 0.0, 0.0
	for i := range samples {
		if s := &samples[i]; s.late && s.w > 0 {
			late++
			if s.u < settledLow {
				low++
			}
		}
	}
	enough := f.seen-f.since >= settledAfter && late >= settledKept
	base := min(f.curve.at(f.lo), envelope(samples))
	prior := base * f.idleShare(f.lo)
	seen := f.hi - f.lo
	f.shaped = f.shaped && seen > minSpan
	if !f.shaped {
		f.idle = prior
		f.settled = enough && lo <= idleLoad
		return
	}
	fitted := max(0, f.curve[0])
	doubt := math.Hypot(deviation, bendDoubt*f.lo*(base-fitted))
	share := 0.0 // of the prior
	if other := f.priorDoubt() * (1 + low/priorDecay) * (base - min(fitted, prior)); doubt > 0 {
		share = doubt * doubt / (doubt*doubt + other*other)
	}
	f.idle = min(fitted+share*(prior-fitted), base)
	f.settled = enough && (lo <= idleLoad || lo <= settledLow && seen >= lo && doubt <= settledError*f.idle)
}

// idleShare returns the ratio of the prior's power at zero load to its power at utilisation u.
func (f *Fit) idleShare(u float64) float64 {
	if at := f.shape(u); at > 0 {
		return min(1, f.shape(0)/at)
	}
	return 1
}

func (f *Fit) priorDoubt() float64 {
	if f.prior != nil {
		return profileDoubt
	}
	return genericDoubt
}

// support returns the range of utilisations with samples near the curve, as means of whole bins. It excludes the
// few outermost samples on either side.
func support(samples []weighed, late bool) (lo, hi float64) {
	var n, u [curveBins]float64
	total := 0.0
	for i := range samples {
		if s := &samples[i]; s.w > 0 && (s.late || !late) {
			n[s.bin]++
			u[s.bin] += s.u
			total++
		}
	}
	rank := min(supportRank, math.Floor((total+1)/2))
	lo, hi = 1, 1
	below := 0.0
	for b := range curveBins {
		if n[b] == 0 {
			continue
		}
		if below < rank {
			lo = u[b] / n[b]
		}
		if below <= total-rank {
			hi = u[b] / n[b]
		}
		below += n[b]
	}
	return lo, hi
}

// envelope returns the lowest mean power of a bin of samples near the curve. While no bin has enough samples, it
// returns the lowest power of a single sample.
func envelope(samples []weighed) float64 {
	var n, w, p [curveBins]float64
	first := math.Inf(1)
	for i := range samples {
		if s := &samples[i]; s.w > 0 {
			n[s.bin]++
			w[s.bin] += s.w
			p[s.bin] += s.w * s.p
			first = min(first, s.p)
		}
	}
	least := math.Inf(1)
	for b := range curveBins {
		if n[b] >= envelopeRank {
			least = min(least, p[b]/w[b])
		}
	}
	if math.IsInf(least, 1) {
		return first
	}
	return least
}
