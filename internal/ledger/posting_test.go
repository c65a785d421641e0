package ledger_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/internal/ledger/ledgertest"
)

// The postings add up to the measured energy, and the sums over windows add up to the whole.
func TestPostingsBalance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := ledgertest.Draw(t)
		var whole ledger.Amount
		type key struct {
			consumer string
			account  ledger.Account
		}
		want := map[key]ledger.Amount{}
		for p := range b.Postings() {
			b.Rates.Charge(&p.Amount, b.Estimated())
			whole.Add(&p.Amount)
			k := key{p.Consumer.Key, p.Consumer.Account}
			if _, twice := want[k]; twice {
				t.Fatalf("duplicate posting for %v", k)
			}
			want[k] = p.Amount
		}
		whole.Unmeasured = b.Batch.Unmeasured
		if whole.Energy() != b.Batch.Measured {
			t.Fatalf("postings add up to %d µJ, want %d", whole.Energy(), b.Batch.Measured)
		}
		var sum, transferred ledger.Amount
		have := map[key]ledger.Amount{}
		last := b.Batch.Start
		for _, w := range ledgertest.Windows(b) {
			checkWindow(t, b, &w, last)
			last = w.Last
			var others, transfer ledger.Amount
			for _, p := range w.Postings {
				if p.Consumer.Account.Kind == ledger.Transfer {
					transfer.Add(&p.Amount)
					continue
				}
				others.Add(&p.Amount)
				k := key{p.Consumer.Key, p.Consumer.Account}
				part := have[k]
				part.Add(&p.Amount)
				have[k] = part
			}
			sum.Add(&others)
			transferred.Add(&transfer)
			if b.Batch.Parent != nil && transfer != others.Negative() {
				t.Fatalf("transfer is %+v, other postings add up to %+v", transfer, others)
			}
			sum.Unmeasured += w.Unmeasured
		}
		if !last.Equal(b.Batch.End) {
			t.Fatalf("windows end at %v, want %v", last, b.Batch.End)
		}
		if sum != whole {
			t.Fatalf("windows add up to %+v, want %+v", sum, whole)
		}
		for k, w := range want {
			if have[k] != w {
				t.Fatalf("%v: windows add up to %+v, want %+v", k, have[k], w)
			}
		}
		if b.Batch.Parent == nil && transferred != (ledger.Amount{}) {
			t.Fatal("unexpected transfer without a host")
		}
	})
}

func checkWindow(t *rapid.T, b *ledger.Booking, w *ledgertest.Window, last time.Time) {
	if !w.First.Equal(last) || w.Last.Before(w.First) || w.Start.After(w.First) ||
		w.First.Sub(w.Start) > ledger.WindowLength ||
		w.Start.Unix()%int64(ledger.WindowLength/time.Second) != 0 {
		t.Fatalf("unexpected piece after %v: window %v from %v to %v", last, w.Start, w.First, w.Last)
	}
	if b.Batch.End.Sub(b.Batch.Start) < 24*time.Hour && w.Last.Sub(w.Start) > ledger.WindowLength {
		t.Fatalf("piece exceeds its window, from %v to %v", w.Start, w.Last)
	}
	for _, p := range w.Postings {
		a := &p.Amount
		if b.Estimated() && a.Estimated != a.Energy() || !b.Estimated() && a.Estimated != 0 ||
			math.IsNaN(b.Rates.Carbon) && (a.Uncharted != a.Facility || a.Carbon != 0) ||
			math.IsNaN(b.Rates.Price) && (a.Unpriced != a.Facility || a.Cost != 0) {
			t.Fatalf("unexpected amount %+v for rates %+v", a, b.Rates)
		}
	}
}

func TestCharge(t *testing.T) {
	const kWh = energy.Microjoules(3.6e12)
	rates := ledger.Rates{PUE: 1.5, Carbon: 400, Price: 0.3}
	a := ledger.Amount{Dynamic: kWh, Idle: kWh}
	rates.Charge(&a, true)
	if a.Facility != 3*kWh || a.Carbon.Grams() != 1200 || math.Abs(a.Cost.Money()-0.9) > 1e-9 || a.Estimated != 2*kWh ||
		a.Uncharted != 0 || a.Unpriced != 0 {
		t.Errorf("unexpected amount %+v", a)
	}
	for _, pue := range []float64{math.NaN(), 0, 0.99, -3, 51, math.Inf(1)} {
		rates := ledger.Rates{PUE: pue, Carbon: math.Inf(1), Price: -0.1}
		a := ledger.Amount{Dynamic: kWh}
		rates.Charge(&a, false)
		if a.Facility != kWh || a.Uncharted != kWh || a.Carbon != 0 || a.Cost.Money() != -0.1 || a.Unpriced != 0 {
			t.Errorf("unexpected amount for PUE %v: %+v", pue, a)
		}
	}
}

// Bookings that result in too many postings are cut by hours or days. The sums are the same.
func TestLongBookings(t *testing.T) {
	for _, c := range []struct {
		length  time.Duration
		windows int
	}{
		{0, 1},
		{1, 1},
		{5 * time.Minute, 1},
		{5*time.Minute + 1, 2},
		{7 * 24 * time.Hour, 7 * 288},
		{30 * 24 * time.Hour, 30 * 24},
		{700 * 24 * time.Hour, 700},
		{20 * 365 * 24 * time.Hour, 1},
	} {
		n, last := 0, ledgertest.Noon
		for p := range (ledger.Window{First: ledgertest.Noon, Last: ledgertest.Noon.Add(c.length)}).Cut(99) {
			if n++; !p.First.Equal(last) {
				t.Fatalf("%v: piece starts at %v after previous end %v", c.length, p.First, last)
			}
			last = p.Last
		}
		if want := c.windows; n < want || n > want+1 || !last.Equal(ledgertest.Noon.Add(c.length)) {
			t.Errorf("%v: got %d pieces, want %d; last end is %v", c.length, n, want, last)
		}
	}
	n := 0
	before := time.Date(1900, 1, 1, 0, 0, 1, 0, time.UTC)
	for p := range (ledger.Window{First: before, Last: before.Add(359 * time.Second)}).Cut(1) {
		if n++; p.Start.Second() != 0 || p.Start.After(p.First) {
			t.Errorf("unexpected window at %v from %v before 1970", p.Start, p.First)
		}
	}
	if n != 2 {
		t.Errorf("unexpected number of pieces: %d", n)
	}
}

// The largest valid values do not overflow.
func TestExtremes(t *testing.T) {
	b := ledgertest.World{Nodes: 1, Pods: 0}.Booking(0, 1)
	const maxMeasured = 1e17
	b.Batch.Measured += maxMeasured - b.Batch.Platform
	b.Batch.Platform = maxMeasured
	b.Batch.End = b.Batch.Start.Add(150 * 365 * 24 * time.Hour)
	b.Rates.PUE, b.Rates.Carbon = 50, 1e5
	var sum ledger.Amount
	for _, w := range ledgertest.Windows(b) {
		for _, p := range w.Postings {
			sum.Add(&p.Amount)
		}
	}
	if sum.Energy() != b.Batch.Measured || sum.Facility != 50*b.Batch.Measured || sum.Carbon <= 0 {
		t.Errorf("postings add up to %+v, measured energy is %d", sum, b.Batch.Measured)
	}
}

func TestNegativePartsAddUp(t *testing.T) {
	a := ledger.Amount{Dynamic: -1_000_003, Cost: -7, Facility: math.MinInt64}
	var sum ledger.Amount
	from := ledgertest.Noon.Add(time.Second)
	for p := range (ledger.Window{First: from, Last: from.Add(46 * time.Minute)}).Cut(1) {
		part := p.Part(&a)
		sum.Add(&part)
	}
	if sum != a {
		t.Errorf("parts add up to %+v, want %+v", sum, a)
	}
}
