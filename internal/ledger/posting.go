package ledger

import (
	"iter"
	"math"
	"math/bits"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// WindowLength is the resolution of the finest sums.
const WindowLength = 5 * time.Minute

// A Posting is the usage of a consumer, which is charged to the consumer's account.
type Posting struct {
	Consumer Consumer
	Amount   Amount
}

// A Window is the part of a booking's interval that falls into five minutes, or the whole interval before Cut
// splits it.
type Window struct {
	Start       time.Time // start of the five minutes
	First, Last time.Time // interval of the booking within the window

	before, until, length uint64 // offsets from the start of the booking and its duration, in nanoseconds
}

// Account returns the node's own account of kind k with the fields that all accounts of the booking have in common.
func (b *Booking) Account(k Kind) Account { return b.charged(Account{Kind: k}) }

// charged returns a with the fields that depend on the node's site and cluster.
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

// Postings yields the usage over the whole booking by consumer and account, without prices. It yields the shares of
// the batch first, with consecutive shares of the same consumer merged, followed by the energy that belongs to no
// consumer. The energy of all postings adds up to the measured energy. The energy that a guest transfers from its
// host is not included, see [Booking.Transfer]. A posting is only valid until the next one is yielded.
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

// Transfer returns the consumer that is credited to the host for energy that its guest reports in more detail. The
// account contains the virtual machine as its owner and the host. It returns false if the node is not a guest.
func (b *Booking) Transfer() (Consumer, bool) {
	if b.Batch.Parent == nil {
		return Consumer{}, false
	}
	a := b.Account(Transfer)
	a.Owner = b.Batch.Parent.VM
	return Consumer{Key: Transfer.String(), Account: a}, true
}

// Estimated reports whether the energy of the booking was computed by a model.
func (b *Booking) Estimated() bool { return b.Batch.Quality == energy.Estimated }

// Conversion factors of the recorded units.
const (
	microjoulesPerKWh = 3.6e12
	microgramsPerGram = 1e6
	nanosPerUnit      = 1e9
)

// Upper bounds of plausible values. Rates beyond them are treated as unknown, because sums of them would soon
// overflow.
const (
	maxPUE      = 50
	maxCarbon   = 1e5
	maxPrice    = 1e6
	maxMeasured = energy.Microjoules(1e17) // per booking: 28 MWh
)

// Charge sets the cost and emissions of the energy of a. An invalid PUE is treated as 1, because only the energy at
// the node is certain.
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

// scaled returns v multiplied by rate and rounded. Results that are out of range are clamped.
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

// maxPostings is the maximum number of postings of a booking. A booking that spans months or contains thousands of
// consumers is cut into hours or days instead of windows, and each piece is recorded in the window in which it
// starts. If even that results in too many postings, the booking is not cut.
const maxPostings = 200_000

var steps = [...]time.Duration{WindowLength, time.Hour, 24 * time.Hour}

// Cut splits the interval from First to Last by windows. An empty interval is one piece of the window that contains
// it. If the number of postings per piece is too large for windows, the interval is split by hours or days.
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

// Splittable reports whether an interval with the given number of shares is split at all. An interval that is not
// split is recorded as a whole in its last window.
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

// Part returns the fraction of a, the usage over the whole booking, that falls into the window. The parts of all
// windows add up to a.
func (w *Window) Part(a *Amount) Amount {
	if w.before == 0 && w.until == w.length {
		return *a
	}
	part := *a
	for _, field := range part.Fields() {
		*field = w.cut(*field)
	}
	if a.CPU%time.Microsecond == 0 { // kernels count microseconds, which are encoded in fewer bytes
		part.CPU = time.Duration(w.cut(int64(a.CPU/time.Microsecond))) * time.Microsecond
	}
	// Either all of a booking's energy is estimated, or none of it. The same is true for missing rates.
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

// cut returns the rounded amount up to the end of the window minus the rounded amount up to its start.
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
