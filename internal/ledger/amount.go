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

// Nanos is an exact amount of money, in thousand-millionths of its currency's unit.
type Nanos int64

// Money converts n to whole units of its currency.
func (n Nanos) Money() float64 { return float64(n) / 1e9 }

// An Amount is what is summed. Energy is at the node, Facility at the site's meter: with PUE. Times of 292 years, the
// most that can be told, may be more.
type Amount struct {
	Dynamic energy.Microjoules // because it computed
	// its part of what is drawn anyway; all of it for the accounts idle, platform and unknown is Dynamic
	Idle     energy.Microjoules
	CPU      time.Duration
	Facility energy.Microjoules
	Carbon   Micrograms
	Cost     Nanos

	Estimated  energy.Microjoules // of Dynamic + Idle: what comes from a model
	Uncharted  energy.Microjoules // of Facility: for which no carbon intensity was known; Carbon says nothing about it
	Unpriced   energy.Microjoules // of Facility: for which no price was known
	Unmeasured time.Duration      // of nodes: time without a value of a meter
	GPU        energy.Microjoules // of Dynamic + Idle: what GPUs used
}

// Energy returns what was used at the node.
func (a *Amount) Energy() energy.Microjoules { return a.Dynamic + a.Idle }

// Fields returns the numbers of a, in the order in which they are declared: all code that treats them alike takes them
// from here.
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

// Negative returns what takes a back.
func (a *Amount) Negative() Amount {
	n := *a
	for _, field := range n.Fields() {
		*field = -*field
	}
	return n
}

// Saturate is like Add, but a sum that is more than can be counted stays at that. It reports whether everything but
// times was less.
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

// saturate adds to a number, which stays at the most that can be counted; it then returns false.
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
