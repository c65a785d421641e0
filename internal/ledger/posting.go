package ledger

import (
	"iter"
	"math"
	"math/bits"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// WindowLength is the time that the finest sums are kept for.
const WindowLength = 5 * time.Minute

// A Posting is what a consumer used. The consumer's account is charged with it.
type Posting struct {
	Consumer Consumer
	Amount   Amount
}

// A Window is a booking's time in five minutes, or all of its time before it is cut.
type Window struct {
	Start       time.Time // of the five minutes
	First, Last time.Time // of the booking's time in them

	before, until, length uint64 // nanoseconds since the booking's start, and how long it is
}

// Account returns the account of a kind that is the node's own, with what all accounts of the booking have in common.
func (b *Booking) Account(k Kind) Account { return b.charged(Account{Kind: k}) }

// charged sets in an account what follows from where the node is.
func (b *Booking) charged(a Account) Account {
	a.Site, a.Signal, a.Currency = b.Rates.Site, b.Rates.Signal, b.Rates.Currency
	a.Host = ""
	if b.Batch.Parent != nil {
		a.Host = b.Batch.Parent.Host
	} else if cluster := ClusterOf(b.Batch.Stream.Node); cluster != "" {
		a.Host = cluster + "/"
	}
	return a
}

// Postings yields what was used over the whole of the booking, by consumer and account, not yet priced: the batch's
// shares, those of one consumer that follow each other together, then what no consumer used. Their energy is what was
// measured. What a guest takes from its host is not in it: see [Booking.Transfer]. A posting is valid until the next.
func (b *Booking) Postings() iter.Seq[*Posting] {
	return func(yield func(*Posting) bool) {
		var p Posting
		for i, c := range b.Consumers {
			s := &b.Batch.Shares[i]
			if i == 0 || c != b.Consumers[i-1] && *c != *b.Consumers[i-1] {
				if i > 0 && !yield(&p) {
					return
				}
				p = Posting{Consumer: *c}
				p.Consumer.Account = b.charged(c.Account)
			}
			p.Amount.Add(&Amount{Dynamic: s.Dynamic, Idle: s.Idle, CPU: s.CPU, GPU: s.GPU})
		}
		if len(b.Consumers) > 0 && !yield(&p) {
			return
		}
		idle := Idle
		if b.Power == Asleep || b.Power == Booting {
			idle = b.Power
		}
		for _, own := range [...]struct {
			kind      Kind
			used, gpu energy.Microjoules
		}{
			{idle, b.Batch.Idle, b.Batch.GPUIdle},
			{Platform, b.Batch.Platform, 0},
			{Unknown, b.Batch.Unknown, b.Batch.GPUUnknown},
		} {
			c := Consumer{Key: own.kind.String(), Account: b.Account(own.kind)}
			p = Posting{c, Amount{Dynamic: own.used, GPU: own.gpu}}
			if own.used != 0 && !yield(&p) {
				return
			}
		}
	}
}

// Transfer returns who takes from a host what its guest tells in more detail; false if the node is no guest. Its
// account names the virtual machine as its owner and the host.
func (b *Booking) Transfer() (Consumer, bool) {
	if b.Batch.Parent == nil {
		return Consumer{}, false
	}
	a := b.Account(Transfer)
	a.Owner = b.Batch.Parent.VM
	return Consumer{Key: Transfer.String(), Account: a}, true
}

// Estimated says that the booking's energy comes from a model.
func (b *Booking) Estimated() bool { return b.Batch.Quality == energy.Estimated }

// What a kilowatt-hour is in the units that are booked.
const (
	microjoulesPerKWh = 3.6e12
	microgramsPerGram = 1e6
	nanosPerUnit      = 1e9
)

// What is beyond is a mistake, and counts as not known: sums of it would soon be more than can be counted.
const (
	maxPUE      = 50
	maxCarbon   = 1e5
	maxPrice    = 1e6
	maxMeasured = energy.Microjoules(1e17) // of one booking: 28 MWh
)

// Charge sets what the energy of a costs and emits. What is no PUE counts as 1: the energy at the node is certain.
func (r *Rates) Charge(a *Amount, estimated bool) {
	pue := r.PUE
	if !(pue >= 1 && pue <= maxPUE) {
		pue = 1
	}
	a.Estimated, a.Uncharted, a.Unpriced, a.Carbon, a.Cost = 0, 0, 0, 0, 0
	if estimated {
		a.Estimated = a.Energy()
	}
	a.Facility = energy.Microjoules(scaled(int64(a.Energy()), pue))
	if known(r.Carbon, maxCarbon) {
		a.Carbon = Micrograms(scaled(int64(a.Facility), r.Carbon*(microgramsPerGram/microjoulesPerKWh)))
	} else {
		a.Uncharted = a.Facility
	}
	if known(r.Price, maxPrice) {
		a.Cost = Nanos(scaled(int64(a.Facility), r.Price*(nanosPerUnit/microjoulesPerKWh)))
	} else {
		a.Unpriced = a.Facility
	}
}

func known(rate, most float64) bool { return math.Abs(rate) <= most }

// scaled returns v times a rate, rounded; what is out of range is clamped.
func scaled(v int64, rate float64) int64 {
	if rate == 1 {
		return v
	}
	f := math.RoundToEven(float64(v) * rate)
	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= -math.MaxInt64:
		return -math.MaxInt64
	}
	return int64(f)
}

// A booking is cut into at most so many postings: one of months, or of thousands of consumers, is cut into hours or
// days, which are booked in the windows in which they begin, and if even that is too fine, it is not cut.
const maxPostings = 200_000

var steps = [...]time.Duration{WindowLength, time.Hour, 24 * time.Hour}

// Cut cuts the time from First to Last by windows. One of no length is a piece of the window that it is in. An interval
// that has so many postings that each window would cost too much is cut by hours or days.
func (w Window) Cut(postings int) iter.Seq[Window] {
	return func(yield func(Window) bool) {
		length := max(w.Last.Sub(w.First), 0)
		step := stepFor(length, postings)
		if length == 0 || step == 0 {
			whole := Window{
				Start: w.Last.Add(-min(length, 1)).UTC().Truncate(WindowLength), First: w.Last.Add(-length),
				Last: w.Last, until: uint64(length), length: uint64(length),
			}
			yield(whole)
			return
		}
		for from := time.Duration(0); from < length; {
			at := w.First.Add(from)
			to := min(length, from+at.Truncate(step).Add(step).Sub(at))
			piece := Window{
				Start: at.UTC().Truncate(WindowLength), First: at, Last: w.First.Add(to),
				before: uint64(from), until: uint64(to), length: uint64(length),
			}
			if !yield(piece) {
				return
			}
			from = to
		}
	}
}

// Splittable reports whether an interval of so many shares is cut at all. One that is not lands whole in its last
// window.
func Splittable(length time.Duration, shares int) bool {
	const own = 3 // idle, platform, unknown
	return stepFor(length, shares+own) > 0
}

func stepFor(length time.Duration, postings int) time.Duration {
	for _, step := range steps {
		if int64(length/step)+1 <= int64(maxPostings/max(postings, 1)) {
			return step
		}
	}
	return 0
}

// Part returns the window's part of what was used over the whole of a booking. Parts of all windows add up to the
// whole.
func (w *Window) Part(a *Amount) Amount {
	if w.before == 0 && w.until == w.length {
		return *a
	}
	part := *a
	for _, field := range part.Fields() {
		*field = w.cut(*field)
	}
	if a.CPU%time.Microsecond == 0 { // kernels count microseconds, which take less room than nanoseconds
		part.CPU = time.Duration(w.cut(int64(a.CPU/time.Microsecond))) * time.Microsecond
	}
	// In one booking, all of the energy is estimated, or has no rate, or none.
	if a.Estimated != 0 {
		part.Estimated = part.Energy()
	}
	if a.GPU == a.Energy() {
		part.GPU = part.Energy()
	}
	if a.Uncharted != 0 {
		part.Uncharted = part.Facility
	}
	if a.Unpriced != 0 {
		part.Unpriced = part.Facility
	}
	return part
}

// cut rounds what was used up to the window's end, and takes away what was used up to its beginning.
func (w *Window) cut(v int64) int64 {
	if v < 0 {
		return share(uint64(-v), w.before, w.length) - share(uint64(-v), w.until, w.length)
	}
	return share(uint64(v), w.until, w.length) - share(uint64(v), w.before, w.length)
}

func share(v, of, length uint64) int64 {
	hi, lo := bits.Mul64(v, of)
	q, _ := bits.Div64(hi, lo, length) // of ≤ length, so q ≤ v
	return int64(q)
}
