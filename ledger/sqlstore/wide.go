package sqlstore

import (
	"math"
	"math/bits"
)

// The fields of an amount, in the order of [ledger.Amount.Fields].
const (
	dynamic = iota
	idle
	cpu
	facility
	carbon
	cost
	estimated
	uncharted
	unpriced
	unmeasured
	fields
)

// A wide is a number of 128 bits: the sum of as many as there can be.
type wide struct {
	hi int64
	lo uint64
}

func (w *wide) add(v int64) {
	lo, carry := bits.Add64(w.lo, uint64(v), 0)
	w.lo, w.hi = lo, w.hi+v>>63+int64(carry) //nolint:mnd // the sign
}

func (w wide) plus(o wide) wide {
	lo, carry := bits.Add64(w.lo, o.lo, 0)
	return wide{w.hi + o.hi + int64(carry), lo}
}

// fits reports whether w is a number of 64 bits.
func (w wide) fits() bool { return w.hi == int64(w.lo)>>63 }

// clamped is w, or the nearest number of 64 bits.
func (w wide) clamped() int64 {
	switch {
	case w.fits():
		return int64(w.lo)
	case w.hi < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}
