package energy

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
)

// million is the scale of calibration factors. Integer millionths keep sums exact.
const million = 1_000_000

// The limits ensure that the product of a unit and a factor fits into 64 bits.
const (
	maxUnit   = 10_000_000_000 // microjoules: 2.8 watt-hours
	maxFactor = 1000 * million
)

// Millionths converts a calibration factor to the integer that [NewScale] accepts.
func Millionths(factor float64) (int64, error) {
	v := math.RoundToEven(factor * million)
	if !(v >= 1 && v <= maxFactor) {
		return 0, fmt.Errorf("factor %v: want 0.000001 to 1000", factor)
	}
	return int64(v), nil
}

// A Scale converts the units of a counter to microjoules. The remainder of less than a microjoule is carried to the
// next amount, so that the error of the sum of all amounts is always less than a microjoule.
type Scale struct {
	num  uint64 // microjoules per unit, times the calibration factor in millionths
	rest uint64 // carried, in millionths of a microjoule
}

// NewScale returns a scale of unit microjoules per unit of the counter, times a calibration factor in millionths. A
// unit of 0 defaults to 1 and a factor of 0 to a million, i.e. no calibration. NewScale panics if an argument is
// out of range; use [Millionths] to validate a user-supplied factor.
func NewScale(unit uint64, factor int64) Scale {
	unit = cmp.Or(unit, 1)
	factor = cmp.Or(factor, million)
	if unit > maxUnit || factor < 1 || factor > maxFactor {
		panic(fmt.Sprintf("energy: scale of %d µJ times %d millionths is out of range", unit, factor))
	}
	return Scale{num: unit * uint64(factor)}
}

// Take returns the number of microjoules for the given units, and the scale to use for the next amount. It returns
// false if the result overflows.
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

// project returns v·part/whole, rounded towards zero and clamped. It returns 0 if part or whole is not positive.
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

// magnitude returns |u|, including for the minimum value.
func (u Microjoules) magnitude() uint64 {
	if u < 0 {
		return -uint64(u)
	}
	return uint64(u)
}

func (u Microjoules) plus(v Microjoules) Microjoules { return addClamped(u, v) }

// addClamped returns the sum of a and b, clamped to the range of T.
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
