package energy

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
)

// million is the scale of factors: an integer number of millionths keeps sums exact for ever.
const million = 1_000_000

// The limits keep the product of a unit and a factor within 64 bits.
const (
	maxUnit   = 10_000_000_000 // microjoules: 2.8 watt-hours
	maxFactor = 1000 * million
)

// Millionths returns a calibration factor as the integer that a [Scale] takes.
func Millionths(factor float64) (int64, error) {
	v := math.RoundToEven(factor * million)
	if !(v >= 1 && v <= maxFactor) {
		return 0, fmt.Errorf("factor %v: want 0.000001 to 1000", factor)
	}
	return int64(v), nil
}

// A Scale turns the units of a counter into microjoules. What is left over, less than a microjoule, is carried to the
// next amount, so that the sum of all amounts is off by less than a microjoule for ever.
type Scale struct {
	num  uint64 // microjoules per unit, times the calibration factor in millionths
	rest uint64 // carried, in millionths of a microjoule
}

// NewScale returns a scale of so many microjoules per unit (0 reads as 1) times a calibration factor in millionths (0
// reads as a million: none). It panics if they are out of range: a factor that a person chose is checked by
// [Millionths].
func NewScale(unit uint64, factor int64) Scale {
	unit = cmp.Or(unit, 1)
	factor = cmp.Or(factor, million)
	if unit > maxUnit || factor < 1 || factor > maxFactor {
		panic(fmt.Sprintf("energy: a scale of %d µJ times %d millionths", unit, factor))
	}
	return Scale{num: unit * uint64(factor)}
}

// Take returns the microjoules of so many units, and the scale with which to go on. It is false if they are too many to
// count.
func (s Scale) Take(units uint64) (Microjoules, Scale, bool) {
	hi, lo := bits.Mul64(units, s.num)
	lo, carry := bits.Add64(lo, s.rest, 0)
	hi += carry // the product is at most (2⁶⁴−1)², so this does not overflow
	if hi >= million {
		return 0, s, false
	}
	q, rest := bits.Div64(hi, lo, million)
	if q > math.MaxInt64 {
		return 0, s, false
	}
	s.rest = rest
	return Microjoules(q), s, true
}

// project returns v·part/whole, rounded towards zero and clamped; 0 where part or whole is not above 0.
func project(v Microjoules, part, whole int64) Microjoules {
	if whole <= 0 || part <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(v.magnitude(), uint64(part))
	q := uint64(math.MaxInt64)
	if hi < uint64(whole) {
		q, _ = bits.Div64(hi, lo, uint64(whole))
		q = min(q, math.MaxInt64)
	}
	if v < 0 {
		return -Microjoules(q)
	}
	return Microjoules(q)
}

// magnitude returns |u|, also of the least number.
func (u Microjoules) magnitude() uint64 {
	if u < 0 {
		return -uint64(u)
	}
	return uint64(u)
}

func (u Microjoules) plus(v Microjoules) Microjoules { return addClamped(u, v) }

// addClamped adds without overflow: a sum that is out of range is clamped.
func addClamped[T ~int64](a, b T) T {
	sum := a + b
	switch {
	case b > 0 && sum < a:
		return math.MaxInt64
	case b < 0 && sum > a:
		return math.MinInt64
	}
	return sum
}
