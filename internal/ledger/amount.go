package ledger

import (
	"math"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// Micrograms is an exact amount of CO2 equivalents.
type Micrograms int64

// Grams converts u to the unit of estimates.
func (u Micrograms) Grams() energy.Grams { return energy.Grams(u) / 1e6 }

// Nanos is an exact amount of money, in billionths of the currency unit.
type Nanos int64

// Money converts n to whole units of its currency.
func (n Nanos) Money() float64 { return float64(n) / 1e9 }

// An Amount contains the quantities that are summed. Energy is measured at the node, Facility at the site's meter
// and therefore includes PUE. Durations overflow after 292 years and are clamped.
type Amount struct {
	Dynamic energy.Microjoules // caused by computation; all energy of accounts such as Idle and Platform
	// share of the node's idle energy
	Idle     energy.Microjoules
	CPU      time.Duration
	Facility energy.Microjoules
	Carbon   Micrograms
	Cost     Nanos

	Estimated  energy.Microjoules // part of Dynamic + Idle that was computed by a model
	Uncharted  energy.Microjoules // part of Facility without a known carbon intensity; not included in Carbon
	Unpriced   energy.Microjoules // part of Facility without a known price; not included in Cost
	Unmeasured time.Duration      // time of nodes without a meter reading
	GPU        energy.Microjoules // part of Dynamic + Idle used by GPUs
}

// Energy returns the energy used at the node.
func (a *Amount) Energy() energy.Microjoules { return a.Dynamic + a.Idle }

// Fields returns pointers to the fields of a in the order of their declaration. All code that treats the fields
// alike uses it.
func (a *Amount) Fields() [11]*int64 {
	return [...]*int64{
		(*int64)(&a.Dynamic), (*int64)(&a.Idle), (*int64)(&a.CPU), (*int64)(&a.Facility), (*int64)(&a.Carbon),
		(*int64)(&a.Cost), (*int64)(&a.Estimated), (*int64)(&a.Uncharted), (*int64)(&a.Unpriced),
		(*int64)(&a.Unmeasured), (*int64)(&a.GPU),
	}
}

// Add adds o to a.
func (a *Amount) Add(o *Amount) {
	from := o.Fields()
	for i, to := range a.Fields() {
		*to += *from[i]
	}
}

// Negative returns a with all fields negated.
func (a *Amount) Negative() Amount {
	n := *a
	for _, field := range n.Fields() {
		*field = -*field
	}
	return n
}

// Saturate is like Add, but clamps sums that overflow. It reports whether all sums except durations fit.
func (a *Amount) Saturate(o *Amount) bool {
	fits := true
	from := o.Fields()
	for i, to := range a.Fields() {
		isTime := to == (*int64)(&a.CPU) || to == (*int64)(&a.Unmeasured)
		fits = (saturate(to, *from[i]) || isTime) && fits
	}
	used := a.Dynamic
	return saturate(&used, a.Idle) && fits
}

// saturate adds by to a number and clamps the result. It returns false if the result was clamped.
func saturate[N ~int64](to *N, by N) bool {
	switch {
	case by > 0 && *to > math.MaxInt64-by:
		*to = math.MaxInt64
		return false
	case by < 0 && *to < math.MinInt64-by:
		*to = math.MinInt64
		return false
	}
	*to += by
	return true
}
