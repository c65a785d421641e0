package sqlstore

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

func drawWindow(t *rapid.T) *window {
	number := rapid.OneOf(rapid.Int64Range(-100, 1e12), rapid.SampledFrom([]int64{0, math.MaxInt64, math.MinInt64}))
	w := &window{
		Start: rapid.Int64Range(-1e9, 1e10).Draw(t, "start"), Node: rapid.Int64Range(1, 1e6).Draw(t, "node"),
		By: rapid.SampledFrom([]int64{byAgent, byEstimate}).Draw(t, "by"),
	}
	w.First = w.Start + rapid.Int64Range(0, 300).Draw(t, "first")
	w.Last = w.First + rapid.Int64Range(0, 300).Draw(t, "last")
	for range rapid.IntRange(1, 3).Draw(t, "bases") {
		w.Bases = append(w.Bases, base{
			rapid.Int64Range(1, 1e9).Draw(t, "base"), time.Duration(number.Draw(t, "unmeasured")),
		})
	}
	for i := range rapid.IntRange(0, 12).Draw(t, "postings") {
		a := ledger.Amount{
			Dynamic: energy.Microjoules(number.Draw(t, "dynamic")), Idle: energy.Microjoules(number.Draw(t, "idle")),
			CPU:      time.Duration(number.Draw(t, "cpu")),
			Facility: energy.Microjoules(number.Draw(t, "facility")),
			Carbon:   ledger.Micrograms(number.Draw(t, "carbon")),
			Cost:     ledger.Nanos(number.Draw(t, "cost")),
		}
		if rapid.Bool().Draw(t, "whole microseconds") {
			a.CPU = a.CPU / 1e9 * 1000
		}
		fn := func(whole energy.Microjoules, name string) energy.Microjoules {
			return rapid.SampledFrom([]energy.Microjoules{0, whole, whole / 3, -5}).Draw(t, name)
		}
		a.Estimated, a.Uncharted, a.Unpriced = fn(a.Energy(), "estimated"), fn(a.Facility, "uncharted"),
			fn(a.Facility, "unpriced")
		a.GPU = fn(a.Energy(), "gpu")
		w.Postings = append(w.Postings, posting{int64(i)*3 + 1, rapid.Int64Range(1, 1e9).Draw(t, "account"), a})
	}
	return w
}

func TestWindowsCanBeReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := drawWindow(t)
		b := w.encode()
		got, err := decodeWindow(w.Start, w.Node, w.By, b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(w, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		at := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
		b[at/8] ^= 1 << (at % 8)
		if _, err := decodeWindow(w.Start, w.Node, w.By, b); !errors.Is(err, ledger.ErrDamaged) {
			t.Fatalf("expected ErrDamaged for changed bit %d, got %v", at, err)
		}
	})
}

func drawEntry(t *rapid.T) *entry {
	start := time.Unix(0, rapid.Int64().Draw(t, "start")/2).UTC()
	e := &entry{
		Node: rapid.Int64Range(1, 1e6).Draw(t, "node"), Start: start,
		End:       start.Add(time.Duration(rapid.Int64Range(0, 1e18).Draw(t, "length"))),
		Agentless: rapid.Bool().Draw(t, "agentless"), Estimated: rapid.Bool().Draw(t, "estimated"),
		Unmeasured: time.Duration(rapid.Int64Range(0, 1e18).Draw(t, "unmeasured")),
		Rates:      ledger.Rates{PUE: rapid.Float64().Draw(t, "pue"), Carbon: 1, Price: math.Inf(1)},
		Base:       rapid.Int64Range(1, 1e6).Draw(t, "base"),
	}
	if rapid.Bool().Draw(t, "guest") {
		e.Guest = posting{Consumer: 7, Account: 9}
	}
	for i := range rapid.IntRange(0, 9).Draw(t, "lines") {
		p := posting{int64(i), rapid.Int64Range(1, 1e9).Draw(t, "account"), ledger.Amount{
			Dynamic: energy.Microjoules(rapid.Int64Range(0, 1e15).Draw(t, "dynamic")), Idle: 5, CPU: time.Duration(i),
		}}
		e.Measured += p.Energy()
		e.Postings = append(e.Postings, p)
	}
	return e
}

func TestEntriesCanBeReadAgain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := drawEntry(t)
		b, k := e.encode(), e.key()
		got, err := decodeEntry(0, k[0], k[1], k[2], b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, got, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
		if _, err := decodeEntry(0, k[0], k[1]+1, k[2], b); !errors.Is(err, ledger.ErrDamaged) {
			t.Fatal("expected ErrDamaged for the payload of another row, got", err)
		}
		at := rapid.IntRange(0, 8*len(b)-1).Draw(t, "bit")
		b[at/8] ^= 1 << (at % 8)
		if _, err := decodeEntry(0, k[0], k[1], k[2], b); !errors.Is(err, ledger.ErrDamaged) {
			t.Fatalf("expected ErrDamaged for changed bit %d, got %v", at, err)
		}
	})
}

// Only disks, not users, can change bytes of a ledger. The fuzz test fixes the checksum, so that the code behind it
// is tested as well.
func FuzzDecodeWindow(f *testing.F) {
	for seed := range uint64(5) {
		w := realistic(rand.New(rand.NewPCG(seed, 1)), 5)
		f.Add(w.encode())
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		defer memtest.Limit(t, 100*len(b))()
		_, _ = decodeWindow(1, 2, byAgent, b)
		w := &window{Start: 1, Node: 2}
		got, err := decodeWindow(1, 2, byAgent, sealBlob(bytes.Clone(b), w.key()...))
		if err != nil {
			return
		}
		again, err := decodeWindow(1, 2, byAgent, got.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatal(diff)
		}
	})
}

func FuzzDecodeEntry(f *testing.F) {
	e := entry{
		Node: 1, Start: time.Unix(1, 0), End: time.Unix(16, 0), Base: 3,
		Postings: []posting{{1, 2, ledger.Amount{CPU: 5}}, {2, 2, ledger.Amount{CPU: 7}}},
	}
	f.Add(e.encode())
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		defer memtest.Limit(t, 100*len(b))()
		_, _ = decodeEntry(1, 1, 1000, 16000, b)
		got, err := decodeEntry(1, 1, 1000, 16000, sealBlob(bytes.Clone(b), 1, 1000, 16000))
		if err != nil {
			return
		}
		k := got.key()
		again, err := decodeEntry(1, k[0], k[1], k[2], got.encode())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(got, again, cmpopts.EquateEmpty(), cmpopts.EquateNaNs()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// realistic returns a window with 20 batches of a node that draws some hundred watts.
func realistic(r *rand.Rand, pods int) *window {
	w := &window{Start: 1_800_000_000, Node: 17, First: 1_800_000_000, Last: 1_800_000_300, Bases: []base{{5000, 0}}}
	rates := ledger.Rates{PUE: 1.37, Carbon: 310 + 20*r.Float64(), Price: 0.27}
	for i := range pods {
		var sum ledger.Amount
		for range 20 {
			a := ledger.Amount{
				Dynamic: energy.Microjoules(r.Int64N(9e7)), Idle: energy.Microjoules(r.Int64N(3e7)),
				CPU: time.Duration(r.Int64N(15e6)) * time.Microsecond,
			}
			rates.Charge(&a, false)
			sum.Add(&a)
		}
		w.Postings = append(w.Postings, posting{int64(1_000_000 + i*(1+r.IntN(40))), int64(5000 + r.IntN(20_000)), sum})
	}
	sortPostings(w.Postings)
	return w
}

// The limit of 6 GB per day for 5,000 nodes of 100 pods allows 41 bytes for a pod's window including overhead.
func TestWindowsAreSmall(t *testing.T) {
	const most = 28
	w := realistic(rand.New(rand.NewPCG(1, 2)), 100)
	if size := float64(len(w.encode())) / 100; size > most {
		t.Errorf("got %.1f bytes per window of a pod, want at most %d", size, most)
	} else {
		t.Logf("%.1f bytes per window of a pod", size)
	}
}

func BenchmarkEncodeWindow(b *testing.B) {
	w := realistic(rand.New(rand.NewPCG(1, 2)), 100)
	for b.Loop() {
		w.encode()
	}
}

func BenchmarkDecodeWindow(b *testing.B) {
	w := realistic(rand.New(rand.NewPCG(1, 2)), 100)
	payload := w.encode()
	for b.Loop() {
		if _, err := decodeWindow(w.Start, w.Node, byAgent, payload); err != nil {
			b.Fatal(err)
		}
	}
}
