package energy_test

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

const (
	ms   = time.Millisecond
	sec  = time.Second
	rapl = 262_143_328_850 // maximum value of a common RAPL counter, in microjoules: 32 bits of 61 µJ
)

// long enables the number of iterations required for a release.
var long = os.Getenv("KUBENERGY_LONG") != ""

func pkg0(most energy.Watts) energy.CounterOptions {
	return energy.CounterOptions{
		Domain: energy.Domain{Kind: energy.Package, Name: "package-0"}, Quality: energy.Measured, Range: rapl,
		Max: most,
	}
}

func TestCounter(t *testing.T) {
	type value struct {
		raw   uint64
		at    time.Duration
		total energy.Microjoules // since the first reading of the run
		run   uint32             // since the first run
	}
	noRange, tiny, full := pkg0(200), pkg0(200), pkg0(200)
	noRange.Range = 0
	tiny.Range, tiny.MicrojoulesPerUnit = 1<<16-1, 61_000
	full.Range = math.MaxUint64
	slow := pkg0(200)
	slow.Range, slow.Period = 0, 5*sec
	for _, c := range []struct {
		name   string
		o      energy.CounterOptions
		values []value
	}{
		{
			"the first value is only a baseline", pkg0(200),
			[]value{{200e9, sec, 0, 0}, {200e9 + 50e6, 2 * sec, 50e6, 0}},
		},
		{"wrap", pkg0(200), []value{{rapl - 10e6, sec, 0, 0}, {90e6 - 1, 2 * sec, 100e6, 0}}},
		{"wrap of 16 bits", tiny, []value{{65535, sec, 0, 0}, {0, 2 * sec, 61_000, 0}, {9, 3 * sec, 610_000, 0}}},
		{"wrap of 64 bits", full, []value{{math.MaxUint64 - 4, sec, 0, 0}, {5, 2 * sec, 10, 0}}},
		{"reset", pkg0(200), []value{
			{200e9, sec, 0, 0}, {200e9 + 50e6, 2 * sec, 50e6, 0}, {10e6, 3 * sec, 50e6, 1}, {60e6, 4 * sec, 100e6, 1},
		}},
		{
			"a small step back is no wrap", pkg0(200),
			[]value{{1e9, sec, 0, 0}, {1e9 - 1, 2 * sec, 0, 1}, {1e9, 3 * sec, 1, 1}},
		},
		{"every decrease without a range is a reset", noRange, []value{{1e9, sec, 0, 0}, {1e9 - 1, 2 * sec, 0, 1}}},
		{"a wrap may hide in a long gap", pkg0(200), []value{{1e9, sec, 0, 0}, {2e9, 1200 * sec, 0, 1}}},
		{"none can in a shorter one", pkg0(200), []value{{1e9, sec, 0, 0}, {101e9, 1001 * sec, 100e9, 0}}},
		{"the envelope", pkg0(200), []value{
			{1e9, sec, 0, 0}, {1e9 + 240e6, 2 * sec, 240e6, 0}, {1e9 + 490e6, 3 * sec, 240e6, 1},
		}},
		{
			"a refresh between two reads in a millisecond", pkg0(200),
			[]value{{1e9, sec, 0, 0}, {1e9 + 200e3, sec + ms/10, 200e3, 0}},
		},
		{
			"values of the same time and of earlier times are ignored", pkg0(200),
			[]value{{1e9, sec, 0, 0}, {1e9 + 5, sec, 0, 0}, {1e9 + 9, ms, 0, 0}, {1e9 + 10, 2 * sec, 10, 0}},
		},
		{
			"a value above the range is invalid", pkg0(200),
			[]value{{1e9, sec, 0, 0}, {rapl + 1, 2 * sec, 0, 1}, {rapl, 3 * sec, 0, 2}, {9, 4 * sec, 10, 2}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := energy.NewCounter(c.o)
			var first energy.Reading
			for i, v := range c.values {
				r := n.Next(v.raw, v.at)
				if i == 0 {
					first = r
				}
				if r.Total-first.Total != v.total || r.Run-first.Run != v.run {
					t.Errorf("value %d at %v: got %d µJ in run %d, want %d in %d", v.raw, v.at, r.Total-first.Total,
						r.Run-first.Run, v.total, v.run)
				}
				if r.Domain != c.o.Domain || r.Quality != energy.Measured {
					t.Errorf("reading of %v, %v", r.Domain, r.Quality)
				}
			}
		})
	}
	t.Run("an unchanged counter was not refreshed", func(t *testing.T) {
		n := energy.NewCounter(slow)
		refreshed := map[int]uint64{1: 5, 4: 1e9, 9: 2e9}
		raw := uint64(0)
		// Its value is attributed to 9 s for seven and a half seconds; after that, no energy was used.
		for i, want := range []time.Duration{1, 1, 1, 4, 4, 4, 4, 4, 9, 9, 9, 9, 9, 9, 9, 9, 17, 17} {
			if v, ok := refreshed[i+1]; ok {
				raw = v
			}
			if r := n.Next(raw, time.Duration(i+1)*sec); r.At != want*sec || r.Raw != raw {
				t.Errorf("at %d s: got value %d of %v, want the value of %d s", i+1, r.Raw, r.At, want)
			}
		}
	})
}

// Scaphandre lost the energy of every interval in which the counter wrapped.
func TestHoursOfWraps(t *testing.T) {
	c := energy.NewCounter(pkg0(400))
	first := c.Next(123_456_789, 0)
	last, truth := first, uint64(123_456_789)
	for s := time.Duration(1); s <= 4*3600; s++ {
		truth += 200e6
		last = c.Next(truth%(rapl+1), s*sec)
	}
	if got := last.Total - first.Total; got != 4*3600*200e6 || last.Run != first.Run {
		t.Errorf("energy of 4 h at 200 W = %v in %d runs, want 2.88 MJ in 1 run", got, last.Run-first.Run+1)
	}
}

func TestCounterResumes(t *testing.T) {
	o := pkg0(200)
	o.MicrojoulesPerUnit, o.Scale = 61, 1_012_345
	one, other := energy.NewCounter(o), energy.NewCounter(o)
	rng, raw := rand.New(rand.NewPCG(1, 2)), uint64(rapl-1e7)
	for i := range 1000 {
		at := time.Duration(i+1) * sec
		a := one.Next(raw, at)
		if b := other.Next(raw, at); a != b {
			t.Fatalf("reading %d after resuming = %+v, want %+v", i, b, a)
		}
		if other = energy.NewCounter(o); i%7 != 0 {
			other.Resume(energy.Reading{Domain: energy.Domain{Name: "another"}, At: at, Total: 99})
		}
		other.Resume(a)
		raw = (raw + rng.Uint64N(3_000_000)) % (rapl + 1)
	}
	c := energy.NewCounter(o)
	c.Resume(energy.Reading{Domain: o.Domain, At: time.Hour, Total: 5, Run: 7, Raw: 1000})
	if r := c.Next(1010, sec); r.At != sec || r.Run == 7 {
		t.Errorf("reading after resuming from a later time of another boot = %+v", r)
	}
	// A process that resumes without a reading must not continue a previous run.
	if a, b := energy.NewCounter(o).Next(0, sec), energy.NewCounter(o).Next(0, 2*sec); a.Run == b.Run {
		t.Error("two processes of one boot use the same run")
	}
}

func TestCounterBreaks(t *testing.T) {
	c := energy.NewCounter(pkg0(200))
	a := c.Next(100, sec)
	c.Break()
	if b := c.Next(200, sec); b != a {
		t.Errorf("reading of the same time = %+v, want %+v", b, a)
	}
	b := c.Next(200, 2*sec)
	if b.Run == a.Run || b.Total != a.Total {
		t.Errorf("reading after a break = %+v, want a new run after %+v", b, a)
	}
	if d := c.Next(300, 3*sec); d.Run != b.Run || d.Total != b.Total+100 {
		t.Errorf("next reading of the new run = %+v after %+v", d, b)
	}
}

func TestScale(t *testing.T) {
	for _, factor := range []float64{0.000_001, 0.97, 1, 5, 1000} {
		if v, err := energy.Millionths(factor); err != nil || v != int64(math.Round(factor*1e6)) {
			t.Errorf("Millionths(%v) = %d, unexpected error: %v", factor, v, err)
		}
	}
	for _, factor := range []float64{0, -1, 1e-9, 1001, math.NaN(), math.Inf(1)} {
		if v, err := energy.Millionths(factor); err == nil {
			t.Errorf("Millionths(%v) = %d, want an error", factor, v)
		}
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for range 2000 {
		unit, factor := 1+rng.Uint64N(1<<rng.UintN(33)), 1+rng.Int64N(2_000_000)
		s, units, sum := energy.NewScale(unit, factor), new(big.Int), new(big.Int)
		for range 30 {
			n := rng.Uint64() >> rng.UintN(64)
			v, next, ok := s.Take(n)
			want := new(big.Int).Mul(big.NewInt(int64(unit)), big.NewInt(factor))
			want.Mul(want, new(big.Int).Add(units, new(big.Int).SetUint64(n))).Div(want, big.NewInt(1e6)).Sub(want, sum)
			if ok != want.IsInt64() {
				t.Fatalf("%d units of %d µJ times %d: got ok = %v", n, unit, factor, ok)
			}
			if !ok {
				continue
			}
			if s = next; want.Int64() != int64(v) {
				t.Fatalf("%d units of %d µJ times %d: got %d µJ, want %v", n, unit, factor, v, want)
			}
			units.Add(units, new(big.Int).SetUint64(n))
			sum.Add(sum, want)
		}
	}
}

// A counterWorld is an exact counter of unbounded size behind one that wraps.
type counterWorld struct {
	o      energy.CounterOptions
	truth  uint64 // units since the start of the run
	raw    uint64
	at     time.Duration
	perMax float64 // units per second at Max
}

func newCounterWorld(rng *rand.Rand) *counterWorld {
	w := &counterWorld{}
	w.o = pkg0(energy.Watts(1 + rng.Float64()*1000))
	if rng.UintN(8) == 0 {
		w.o.Range = 0
	} else {
		w.o.Range = math.MaxUint64 >> rng.UintN(65-8) // 8 to 64 bits
		if w.o.Range > 1<<20 && rng.UintN(2) == 0 {
			w.o.Range -= rng.Uint64N(w.o.Range / 2)
		}
	}
	w.o.MicrojoulesPerUnit = 1 + rng.Uint64N(1<<rng.UintN(20))
	w.o.Scale = 1_000_000
	if rng.UintN(2) == 0 {
		w.o.Scale = 500_000 + rng.Int64N(1_000_000)
	}
	if w.o.Range > 0 && rng.UintN(4) > 0 { // wraps after a second to a day
		w.o.Max = energy.Watts(float64(w.o.Range) * w.unit() / 1e6 / math.Pow(10, rng.Float64()*5))
		w.o.Max = min(max(w.o.Max, 1e-3), 1e6)
	}
	w.perMax = float64(w.o.Max) * 1e6 / w.unit()
	w.raw = rng.Uint64()
	if w.o.Range == 0 {
		w.raw >>= 1 + rng.UintN(63)
	} else if w.o.Range < math.MaxUint64 {
		w.raw %= w.o.Range + 1
	}
	w.at = time.Duration(rng.Int64N(int64(time.Hour)))
	return w
}

func (w *counterWorld) unit() float64 {
	return float64(w.o.MicrojoulesPerUnit) * float64(w.o.Scale) / 1e6
}

// use advances the time by dt with a random power of at most Max.
func (w *counterWorld) use(rng *rand.Rand, dt time.Duration) {
	used := uint64(min(w.perMax*dt.Seconds()*rng.Float64(), 1<<60))
	w.truth += used
	w.at += dt
	switch left := w.o.Range - w.raw; {
	case w.o.Range == 0 || used <= left:
		w.raw += used
	case w.o.Range == math.MaxUint64:
		w.raw = used - left - 1
	default:
		w.raw = (used - left - 1) % (w.o.Range + 1)
	}
}

// microjoules returns the exact value, computed with integers of arbitrary size.
func (w *counterWorld) microjoules() (energy.Microjoules, bool) {
	v := new(big.Int).SetUint64(w.truth)
	v.Mul(v, new(big.Int).SetUint64(w.o.MicrojoulesPerUnit*uint64(w.o.Scale)))
	v.Div(v, big.NewInt(1e6))
	return energy.Microjoules(v.Int64()), v.IsInt64()
}

func (w *counterWorld) envelope(dt time.Duration) float64 { // in units
	return 1.2 * w.perMax * (dt + 20*ms).Seconds()
}

// For any width and scale, and with wraps, resets, decreases and gaps, a counter is exact within a run. Every fault
// is detected unless it is indistinguishable from usage, and the counted energy never exceeds the maximum of the
// domain.
func TestCounterAgainstOracle(t *testing.T) {
	sequences := 100_000
	if long {
		sequences = 10_000_000
	}
	var steps, wraps, breaks, missed int
	for seq := range sequences {
		rng := rand.New(rand.NewPCG(uint64(seq), 5))
		w := newCounterWorld(rng)
		if w.o.Range == 0 && w.raw > math.MaxUint64/2 {
			continue
		}
		c := energy.NewCounter(w.o)
		last := c.Next(w.raw, w.at)
		base := last.Total
		for range 3 + rng.UintN(8) {
			steps++
			dt := time.Duration(float64(ms) * math.Pow(10, rng.Float64()*4.5)) // up to 31 s
			if rng.UintN(10) == 0 {
				dt = time.Duration(float64(sec) * math.Pow(10, rng.Float64()*6)) // up to 11 days
			}
			if wrap := float64(w.o.Range) / w.perMax; w.o.Range > 0 && wrap < 1e6 && rng.UintN(2) == 0 {
				dt = max(ms, time.Duration(wrap*rng.Float64()*float64(sec)))
			}
			before, fault := w.raw, false
			w.use(rng, dt)
			if rng.UintN(12) == 0 {
				fault = true
				w.raw = []uint64{0, w.raw >> rng.UintN(20), before - min(before, rng.Uint64N(1000))}[rng.UintN(3)]
			}
			r := c.Next(w.raw, w.at)
			if r.At != w.at || r.Raw != w.raw || r.Total < last.Total {
				t.Fatalf("sequence %d: unexpected reading %+v after %+v", seq, r, last)
			}
			counted := float64(r.Total-last.Total) / w.unit()
			if counted > w.envelope(dt)*(1+1e-9)+1 {
				t.Fatalf("sequence %d: counted %v units in %v, want at most %v", seq, counted, dt, w.envelope(dt))
			}
			hides := w.o.Range > 0 && w.envelope(dt) >= float64(w.o.Range)*(1+1e-3)+2
			safe := w.o.Range == 0 || w.envelope(dt) < float64(w.o.Range)*(1-1e-3)-2
			switch {
			case r.Run != last.Run:
				breaks++
				if r.Run != last.Run+1 || r.Total != last.Total {
					t.Fatalf("sequence %d: unexpected start of a new run %+v after %+v", seq, r, last)
				}
				if !fault && safe {
					t.Fatalf("sequence %d: reading %+v does not continue the run of %+v within %v, options %+v", seq, r, last, dt, w.o)
				}
				base, w.truth = r.Total, 0
			case hides:
				t.Fatalf("sequence %d: run continues although a wrap may be hidden in %v: %+v", seq, dt, w.o)
			case fault:
				// The fault looks like usage within the limit, which was checked above.
				missed++
				base, w.truth, last = r.Total, 0, r
				c = energy.NewCounter(w.o)
				c.Resume(energy.Reading{Domain: r.Domain, At: r.At, Total: r.Total, Run: r.Run, Raw: r.Raw})
				continue
			default:
				if w.raw < before {
					wraps++
				}
				if want, ok := w.microjoules(); !ok || want != r.Total-base {
					t.Fatalf("sequence %d: got %d µJ in the run, want %v, options %+v", seq, r.Total-base, want, w.o)
				}
			}
			last = r
		}
	}
	t.Logf("%d sequences, %d steps: %d wraps counted exactly, %d new runs, %d undetectable faults", sequences,
		steps, wraps, breaks, missed)
	if wraps < sequences/4 || breaks < sequences/4 {
		t.Error("the sequences contain too few wraps or breaks")
	}
}

func FuzzCounterNext(f *testing.F) {
	f.Add(uint64(rapl), uint64(61), int64(1e6), 200.0, int64(0), []byte("0123456789abcdef0123456789abcdef"))
	f.Add(uint64(math.MaxUint64), uint64(0), int64(0), 0.0, int64(5e9),
		[]byte{0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0})
	f.Add(uint64(0), uint64(1e10), int64(1e9), 1e308, int64(math.MaxInt64), make([]byte, 64))
	f.Fuzz(func(t *testing.T, rng, unit uint64, scale int64, most float64, period int64, data []byte) {
		defer memtest.Limit(t, 100*len(data))()
		if unit > 1e10 || scale < 0 || scale > 1e9 || period < 0 || math.IsNaN(most) {
			t.Skip()
		}
		o := energy.CounterOptions{
			Domain: energy.Domain{Kind: energy.Wall, Name: "fuzz"}, Range: rng, MicrojoulesPerUnit: unit, Scale: scale,
			Max: energy.Watts(most), Period: time.Duration(period),
		}
		c := energy.NewCounter(o)
		var last energy.Reading
		for i := 0; len(data) >= 16; i++ {
			raw, at := binary.LittleEndian.Uint64(data), time.Duration(binary.LittleEndian.Uint64(data[8:]))
			data = data[16:]
			again := energy.NewCounter(o)
			again.Resume(last)
			r := c.Next(raw, at)
			if r.Total < 0 || r.Rest >= 1e6 {
				t.Fatalf("reading %+v", r)
			}
			if i == 0 {
				last = r
				continue
			}
			switch {
			case at <= last.At:
				if r != last {
					t.Fatalf("a value that is not later changed the reading from %+v to %+v", last, r)
				}
			case r.Run == last.Run && (r.Total < last.Total || r.At < last.At):
				t.Fatalf("%+v follows %+v", r, last)
			case r.Run == last.Run && r.At > last.At && r.At-last.At > 0:
				watts := min(max(most, 0), 1e6) * 1.2
				if joules, dt := (r.Total - last.Total).Joules(),
					(r.At-last.At).Seconds()+max(o.Period.Seconds(), 0.02); float64(joules) > watts*dt*(1+1e-9)+1e-5 {
					t.Fatalf("counted %v in %v s, want at most %v W", joules, dt, watts)
				}
			}
			if most > 0 && at > last.At {
				if resumed := again.Next(raw, at); resumed != r {
					t.Fatalf("reading after resuming = %+v, want %+v", resumed, r)
				}
			}
			last = r
		}
	})
}

func BenchmarkCounter(b *testing.B) {
	c, raw, at := energy.NewCounter(pkg0(400)), uint64(0), time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		raw, at = (raw+200e6)%(rapl+1), at+sec
		c.Next(raw, at)
	}
}
