package energy

import (
	"math"
	"time"
)

// Smoothed is a mean of power and its deviation in which what was measured t ago weighs e^(−t/τ), for samples that
// come at any time, of any length and from any number of replicas. Of samples that come every Δt, the newest weighs 1
// − e^(−Δt/τ), as in an exponentially weighted moving average; the first few are averaged plainly. Samples of one
// time weigh the same, in whatever order they come. The zero Smoothed has no samples.
//
// Power that goes to another level is followed at once: where all samples of one interval lie beyond what the
// deviation explains, and the next one agrees with them, what was before is forgotten. Replicas of unlike load are no
// change: those that are as before contradict it.
type Smoothed struct {
	at                   int64   // what the sums are as of, in nanoseconds since 1970
	weight, sum, squares float64 // seconds; times watts; times their squares

	// Samples that wait for the opinion of the next interval: when the first of them ended, their mean, their weight.
	oddAt           int64
	odd, oddSeconds float32

	count int32
}

// What makes a sample odd: so many deviations, and so much of the mean, away from it, once there are so many samples.
// What is less, the mean follows soon enough.
const (
	oddDeviations = 3
	oddShare      = 0.3
	oddAfter      = 3
)

// Add adds the mean power over an interval that ends at an instant. What makes no sense is left out.
func (s *Smoothed) Add(power Watts, over time.Duration, end time.Time, tau time.Duration) {
	x, w := float64(power), over.Seconds()
	if !(x >= 0) || math.IsInf(x, 1) || !(w > 0) || tau <= 0 {
		return
	}
	if s.count == math.MaxInt32 {
		s.count /= 2
	}
	s.count++
	w = min(w, tau.Seconds()) // a sample that is much longer than τ says little about its end
	at := end.UnixNano()
	odd, waiting := s.isOdd(x), s.oddSeconds > 0
	overlaps := waiting && at-s.oddAt < int64(over)/10*9
	agrees := odd && waiting && s.agrees(x)

	if age := time.Duration(at - s.at); s.weight == 0 || age >= 0 {
		share := decay(age, tau)
		s.weight, s.sum, s.squares, s.at = s.weight*share, s.sum*share, s.squares*share, at
	} else {
		w *= decay(-age, tau) // it comes late
	}
	switch {
	case agrees && overlaps:
		total := float64(s.oddSeconds) + w
		s.odd += float32((x - float64(s.odd)) * w / total)
		s.oddSeconds = float32(total)
		return
	case agrees:
		s.weight, s.sum, s.squares = 0, 0, 0
		odd = false
	}
	s.flush()
	if odd {
		s.oddAt, s.odd, s.oddSeconds = at, float32(x), float32(w)
		return
	}
	s.put(x, w)
}

func decay(age, tau time.Duration) float64 { return math.Exp(-max(0, age.Seconds()) / tau.Seconds()) }

func (s *Smoothed) put(x, w float64) {
	s.weight += w
	s.sum += w * x
	s.squares += w * x * x
}

// flush counts the samples that wait.
func (s *Smoothed) flush() {
	if s.oddSeconds > 0 {
		s.put(float64(s.odd), float64(s.oddSeconds))
		s.oddSeconds = 0
	}
}

// isOdd reports whether the deviation does not explain a sample.
func (s *Smoothed) isOdd(x float64) bool {
	mean, deviation := s.moments()
	return s.count > oddAfter && math.Abs(x-mean) > max(oddDeviations*deviation, oddShare*mean)
}

// agrees reports whether an odd sample says the same as those that wait.
func (s *Smoothed) agrees(x float64) bool {
	mean, _ := s.moments()
	odd := float64(s.odd)
	return (x > mean) == (odd > mean) && math.Abs(x-odd) < math.Abs(odd-mean)/2
}

func (s *Smoothed) moments() (mean, deviation float64) {
	if !(s.weight > 0) {
		return 0, 0
	}
	mean = s.sum / s.weight
	return mean, math.Sqrt(max(0, s.squares/s.weight-mean*mean))
}

// settled returns the moments of all samples, those that wait among them.
func (s Smoothed) settled() (mean, deviation float64) {
	s.flush()
	return s.moments()
}

// Mean returns the mean; 0 without samples.
func (s *Smoothed) Mean() Watts {
	mean, _ := s.settled()
	return Watts(mean)
}

// Deviation returns the standard deviation of samples from the mean.
func (s *Smoothed) Deviation() Watts {
	_, deviation := s.settled()
	return Watts(deviation)
}

// Samples returns how many samples were added.
func (s *Smoothed) Samples() int { return int(s.count) }

// At returns the end of the latest sample.
func (s *Smoothed) At() time.Time { return time.Unix(0, s.at).UTC() }

// Shrink returns what to expect of something after n samples of the given mean: closer to a prior, which weighs as
// much as so many samples, the fewer there are. Without either it is the prior.
func Shrink(mean Watts, n float64, prior Watts, weight float64) Watts {
	if !(n+weight > 0) {
		return prior
	}
	return Watts((n*float64(mean) + weight*float64(prior)) / (n + weight))
}
