package energy

import (
	"encoding/json"
	"errors"
	"math"
	"time"
)

// Smoothed is an exponentially weighted mean of power and its deviation, in which a measurement of age t has the
// weight e^(−t/τ). Samples may have any length, arrive at any time and come from any number of replicas. If samples
// arrive every Δt, the newest has the weight 1 − e^(−Δt/τ), as in an exponentially weighted moving average; the
// first few are averaged with equal weights. Samples of the same time have equal weights regardless of their order.
// The zero Smoothed has no samples.
//
// A step to another power level is followed immediately: if all samples of an interval deviate more than expected
// and the next interval agrees with them, earlier samples are discarded. Replicas with different loads are not
// mistaken for a step, because the unchanged replicas contradict it.
type Smoothed struct {
	at                   int64   // reference time of the sums, in Unix nanoseconds
	weight, sum, squares float64 // sums of the durations in seconds, of duration × watts, and of duration × watts²

	// Deviating samples that the next interval must confirm: the end of the first of them, their mean and their
	// weight.
	oddAt           int64
	odd, oddSeconds float32

	count int32
}

// A sample deviates if its distance from the mean exceeds both limits and enough samples exist. The mean follows
// smaller changes quickly enough.
const (
	oddDeviations = 3
	oddShare      = 0.3
	oddAfter      = 3
)

// Add adds the mean power over an interval that ends at the given time. Invalid samples are ignored.
func (s *Smoothed) Add(power Watts, over time.Duration, end time.Time, tau time.Duration) {
	x, w := float64(power), over.Seconds()
	if !(x >= 0) || math.IsInf(x, 1) || !(w > 0) || tau <= 0 {
		return
	}
	if s.count == math.MaxInt32 {
		s.count /= 2
	}
	s.count++
	w = min(w, tau.Seconds()) // a sample much longer than τ contains little information about its end
	at := end.UnixNano()
	odd, waiting := s.isOdd(x), s.oddSeconds > 0
	overlaps := waiting && at-s.oddAt < int64(over)/10*9
	agrees := odd && waiting && s.agrees(x)

	if age := time.Duration(at - s.at); s.weight == 0 || age >= 0 {
		share := decay(age, tau)
		s.weight, s.sum, s.squares, s.at = s.weight*share, s.sum*share, s.squares*share, at
	} else {
		w *= decay(-age, tau) // the sample is late
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

// flush adds the unconfirmed samples to the sums.
func (s *Smoothed) flush() {
	if s.oddSeconds > 0 {
		s.put(float64(s.odd), float64(s.oddSeconds))
		s.oddSeconds = 0
	}
}

// isOdd reports whether x deviates more than expected from the mean.
func (s *Smoothed) isOdd(x float64) bool {
	mean, deviation := s.moments()
	return s.count > oddAfter && math.Abs(x-mean) > max(oddDeviations*deviation, oddShare*mean)
}

// agrees reports whether x confirms the unconfirmed samples.
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

// settled returns the moments of all samples, including the unconfirmed ones.
func (s Smoothed) settled() (mean, deviation float64) {
	s.flush()
	return s.moments()
}

// Mean returns the mean, or 0 without samples.
func (s *Smoothed) Mean() Watts {
	mean, _ := s.settled()
	return Watts(mean)
}

// Deviation returns the standard deviation of the samples.
func (s *Smoothed) Deviation() Watts {
	_, deviation := s.settled()
	return Watts(deviation)
}

// Samples returns the number of samples added.
func (s *Smoothed) Samples() int { return int(s.count) }

// At returns the end of the latest sample.
func (s *Smoothed) At() time.Time { return time.Unix(0, s.at).UTC() }

// fields returns pointers to the fields, in the order in which they are stored.
func (s *Smoothed) fields() [8]any {
	return [8]any{&s.at, &s.weight, &s.sum, &s.squares, &s.oddAt, &s.odd, &s.oddSeconds, &s.count}
}

// MarshalJSON implements [json.Marshaler], to restore a Smoothed after a restart.
func (s Smoothed) MarshalJSON() ([]byte, error) { return json.Marshal(s.fields()) }

// UnmarshalJSON implements [json.Unmarshaler]. It returns an error for sums that no samples can have.
func (s *Smoothed) UnmarshalJSON(text []byte) error {
	var stored Smoothed
	into := stored.fields()
	if err := json.Unmarshal(text, &into); err != nil {
		return err
	}
	if min(stored.weight, stored.sum, stored.squares, float64(min(stored.odd, stored.oddSeconds))) < 0 ||
		stored.count < 0 {
		return errors.New("smoothed power with a negative sum")
	}
	*s = stored
	return nil
}

// Shrink returns the estimate for a quantity after n samples of the given mean. The prior has the weight of the
// given number of samples, so the estimate is closer to the prior the fewer samples there are. If both weights are
// 0, the estimate is the prior.
func Shrink(mean Watts, n float64, prior Watts, weight float64) Watts {
	if !(n+weight > 0) {
		return prior
	}
	return Watts((n*float64(mean) + weight*float64(prior)) / (n + weight))
}
