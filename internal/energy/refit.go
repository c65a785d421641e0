package energy

import (
	"cmp"
	"math"
	"slices"
)

const (
	memory     = 256.0    // samples after which one counts least; after half as many it counts half
	minAge     = 1.0 / 4  // what it counts then, until others take its place
	distrust   = 1.0 / 32 // of the weight of samples from before a change of the machine is left
	startNoise = 0.01     // of the medians of bins, in parts of power
	minNoise   = 0.002    // noise is not believed to be less
	bisquare   = 4.685    // Tukey's constant: 95 % efficient on Gaussian noise
	passes     = 4        // of reweighting
	startReach = 0.04     // noise that the first of them allows for, in parts of power; each next one half as much

	supportRank  = 3 // the curve is known from the third lowest to the third highest sample, about
	envelopeRank = 3 // what fewer samples of a bin say is no envelope

	settledAfter = 48   // samples since the machine last changed
	settledKept  = 12   // and of these, so many near the curve and still remembered
	settledError = 0.05 // in parts of idle power
	settledLow   = 0.25 // utilisation; more is too far from idle to be sure of anything
	idleLoad     = 0.01 // utilisation at which a node idles

	minSpan = 1e-3 // of utilisation: less is no range of loads at all

	// The curve may bend where nothing was seen. If that is below a utilisation of u, what the fitted curve says that
	// the power between none and u is may be off by bendDoubt·u parts of it.
	bendDoubt = 2.5

	// In parts of what lies between the power at the least load and at none: how far the shape of a profile may be off
	// there, and that of any server. Both double with so many samples at low loads.
	profileDoubt = 0.4
	genericDoubt = 1.0
	priorDecay   = 16.0
)

// A weighed sample is one of those that a refit looks at.
type weighed struct {
	u, p float64
	age  float64 // weight by age
	w    float64 // weight by age and distance from the curve
	bin  int
	late bool // since the machine last changed
}

// refit fits the curve to all samples. It depends on nothing but these: not on the curve before.
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

// weigh lists the samples in order of bins and age, and returns how many they are.
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

// start fits a curve to the bins' lower medians, which a minority of spoiled samples does not move far.
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

// lowerMedian returns the least value at or below which there is half of the weight by age of some samples.
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

// spread estimates the noise by the median of the distances from the curve, in parts of power.
func (f *Fit) spread(samples []weighed) float64 {
	median := lowerMedian(samples, func(s weighed) float64 {
		if off := math.Abs(s.p/f.curve.within(s.bin, s.u) - 1); off < 1 {
			return off
		}
		return 1 // also where the curve is 0
	})
	return max(1.4826*median, minNoise)
}

// conclude derives idle power and its certainty from the curve; deviation is the standard error of its lowest point.
// The curve's idle power and the prior's are averaged, each with the weight of its certainty.
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

// idleShare returns what part of the power at utilisation u the prior draws at none.
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

// support returns between which utilisations there are samples near the curve, in whole bins' means, leaving out the
// few at either end.
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

// envelope returns the least mean power of a bin of samples near the curve; as long as no bin has enough of them, the
// least power of one.
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
