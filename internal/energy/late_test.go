package energy_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
)

// A board is a node with a wall meter that includes 100 W of platform power, and packages that draw 20 W idle and
// 60 W under load.
type board struct {
	a        *energy.Attributor
	out      energy.Attribution
	at       time.Duration
	wall     energy.Microjoules
	packages []energy.Microjoules
	busy     time.Duration
}

// second advances the time by a second at utilisation u. Only the given packages are read.
func (b *board) second(t *testing.T, u float64, read ...int) bool {
	t.Helper()
	b.at += sec
	b.busy += time.Duration(4 * u * float64(sec))
	b.wall += energy.Microjoules((120 + 60*u) * 1e6)
	for i := range b.packages {
		b.packages[i] += energy.Microjoules((20 + 60*u) * 1e6 / float64(len(b.packages)))
	}
	o := energy.Observation{At: b.at, CPUs: 4, Busy: b.busy, Root: []energy.Reading{wall(b.at, b.wall)}}
	for _, i := range read {
		o.Parts = append(o.Parts, socket(i, b.at, b.packages[i]))
	}
	o.Usage = []energy.Usage{{ID: energy.ContainerID("a", "1"), CPU: b.busy}}
	done := b.a.Observe(&o, &b.out)
	if done {
		check(t, &b.out)
	}
	return done
}

// Without RAPL, the platform of a node cannot be distinguished from its processors. Its energy must not be counted
// as idle energy or as energy of pods.
func TestLostPartIsUnknown(t *testing.T) {
	for name, c := range map[string]struct {
		packages    []energy.Microjoules
		all, remain []int
	}{
		"the only one": {make([]energy.Microjoules, 1), []int{0}, nil},
		"one of two":   {make([]energy.Microjoules, 2), []int{0, 1}, []int{1}},
	} {
		t.Run(name, func(t *testing.T) {
			b := board{a: energy.NewAttributor(energy.AttributorOptions{}), packages: c.packages}
			unknown := 0
			for s := range 1000 {
				u := float64(s*7%20) / 20
				if s >= 199 && s < 204 {
					u = 0.5 // the load during the extrapolation
				}
				read := c.all
				if s >= 200 && s < 330 {
					read = c.remain
				}
				if s == 260 { // the loss outlasts the process
					b.a.Observe(&energy.Observation{
						At: b.at + sec/2, CPUs: 4,
						Root: []energy.Reading{{Domain: wall(0, 0).Domain, At: b.at + sec/2, Total: b.wall, Run: 1}},
					}, &b.out)
					b.a.Observe(&energy.Observation{
						At: b.at + 3*sec/4, CPUs: 4, Root: []energy.Reading{wall(b.at+3*sec/4, b.wall)},
					}, &b.out)
				}
				if !b.second(t, u, read...) || s < 100 {
					continue
				}
				idle, pod := b.out.Idle.Joules(), b.out.Shares[0].Dynamic.Joules()
				if b.out.Unknown > 0 {
					if unknown++; b.out.Unknown != b.out.Measured || s < 200 || s > 330 {
						t.Fatalf("at %d s: %+v", s, b.out)
					}
				}
				switch {
				case s < 200 || s > 330: // normal operation
					if math.Abs(float64(idle)-20) > 1 || math.Abs(float64(pod)-60*u) > 1 ||
						b.out.Platform.Joules() < 99 {
						t.Fatalf("unexpected attribution at %d s, utilisation %v: %+v", s, u, b.out)
					}
				case s < 204: // extrapolated
					if idle > 21 || pod > 61 {
						t.Fatalf("unexpected attribution at %d s, utilisation %v: %+v", s, u, b.out)
					}
				case b.out.Unknown != b.out.Measured:
					t.Fatalf("at %d s: %+v", s, b.out)
				}
			}
			if unknown < 120 {
				t.Errorf("energy is unknown for %d s, want at least 120 of 130", unknown)
			}
			if w, settled := b.a.IdlePower(); !settled || math.Abs(float64(w)-20) > 0.5 {
				t.Errorf("unexpected IdlePower() = %v W, settled %v", float64(w), settled)
			}
		})
	}
}

// Extrapolated usage is not added to the fit. Otherwise, idle power would absorb the part not caused by the load.
func TestGuessesTeachNothing(t *testing.T) {
	b := board{a: energy.NewAttributor(energy.AttributorOptions{}), packages: make([]energy.Microjoules, 1)}
	for s := range 600 {
		u := float64(s*7%20) / 20
		if s >= 300 && s%5 < 2 {
			b.second(t, u)
			continue
		}
		b.second(t, u, 0)
	}
	if w, settled := b.a.IdlePower(); !settled || math.Abs(float64(w)-20) > 0.2 {
		t.Errorf("unexpected IdlePower() = %v W, settled %v", float64(w), settled)
	}
}

// A process that restores a state expects the parts that it reads itself, not those of the previous process.
func TestPartsOfAnotherProcess(t *testing.T) {
	b := board{a: energy.NewAttributor(energy.AttributorOptions{}), packages: make([]energy.Microjoules, 2)}
	restart := func() {
		t.Helper()
		state := b.a.AppendState(nil)
		b.a = energy.NewAttributor(energy.AttributorOptions{})
		if err := b.a.RestoreState(state); err != nil {
			t.Fatal(err)
		}
	}
	for range 100 {
		b.second(t, 0.5, 0, 1)
	}
	restart()
	b.second(t, 0.5, 0)
	b.second(t, 0.5, 0, 1)
	for range 10 {
		b.second(t, 0.5, 0)
	}
	if b.out.Unknown != b.out.Measured {
		t.Errorf("expected unknown energy while a part that this process has read is missing: %+v", b.out)
	}
	restart()
	for range 10 {
		b.second(t, 0.5)
	}
	if b.out.Unknown != 0 || b.out.Platform != 0 {
		t.Errorf("unexpected attribution of a process without parts: %+v", b.out)
	}
}

// A meter that is scraped rarely, or hangs for a long time, still measures the energy between two of its values
// exactly.
func TestSlowScrapesAreExact(t *testing.T) {
	for _, every := range []int{61, 120, 300, 900, 4000} {
		t.Run(fmt.Sprint(every, " s"), func(t *testing.T) {
			a := energy.NewAttributor(energy.AttributorOptions{})
			var out energy.Attribution
			busy, total, shown := time.Duration(0), energy.Microjoules(1e9), energy.Reading{}
			sum, first, end, cpu, pod := energy.Microjoules(0), energy.Microjoules(0), time.Duration(0),
				time.Duration(0), energy.Microjoules(0)
			ended, unmeasured := 0, time.Duration(0)
			for s := 0; s <= 6*every; s++ {
				at := time.Duration(s) * sec
				busy += sec
				if total += energy.Microjoules(90e6 + s%7*1e6); s%every == 0 {
					if shown = wall(at, total); s == 0 {
						first, busy = total, sec
					}
				}
				o := energy.Observation{At: at + sec/3, CPUs: 2, Busy: busy, Root: []energy.Reading{shown}}
				o.Usage = []energy.Usage{{ID: "pod/a/1", CPU: busy * 3 / 4}, {ID: energy.System, CPU: busy / 4}}
				if s == every+1 {
					o.Ended = usage("pod/b/1 500 0")
				}
				if s%17 == 5 {
					state := a.AppendState(nil)
					a = energy.NewAttributor(energy.AttributorOptions{})
					if err := a.RestoreState(state); err != nil {
						t.Fatal(err)
					}
				}
				if !a.Observe(&o, &out) {
					continue
				}
				check(t, &out)
				if out.Start < end {
					t.Fatalf("interval from %v follows one that ends at %v", out.Start, end)
				}
				sum, end, unmeasured = sum+out.Measured, out.End, unmeasured+out.Unmeasured
				for _, share := range out.Shares {
					if cpu += share.CPU; share.Ended {
						ended++
					}
					if share.ID == "pod/a/1" {
						pod += share.Dynamic
					}
				}
				if out.Measured > 0 && out.Idle > out.Measured/2 {
					t.Errorf("of %v measured, %v are idle, want at most half", out.Measured, out.Idle)
				}
			}
			if want := total - first; sum != want {
				t.Errorf("measured energy = %v, want %v", sum, want)
			}
			if want := busy + sec/2 - sec; ended != 1 || cpu < want-2 || cpu > want+2 {
				t.Errorf("got %d ended consumers and CPU time %v, want 1 and %v", ended, cpu, want)
			}
			if (every <= 300) != (unmeasured == 0) {
				t.Errorf("unexpected unmeasured time %v", unmeasured)
			}
			if pod < sum*4/10 {
				t.Errorf("energy of a pod with three quarters of the CPU time = %v of %v, want at least 40 %%", pod, sum)
			}
		})
	}
}

// The idle power of a model of the whole machine must not be used for its board.
func TestIdlePowerBelongsToTheRoot(t *testing.T) {
	type setup struct {
		root  energy.Domain
		run   uint32
		parts []int
	}
	model, psys := energy.Domain{Kind: energy.Model, Name: "model"}, energy.Domain{Kind: energy.Psys, Name: "psys"}
	for _, c := range []struct {
		name   string
		then   setup
		forget bool
	}{
		{"the same", setup{root: model}, false},
		{"another run", setup{root: model, run: 1}, false},
		{"another root", setup{root: psys}, true},
		{"a root with parts", setup{root: model, parts: []int{0}}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := energy.NewAttributor(energy.AttributorOptions{})
			var out energy.Attribution
			at, busy, total := time.Duration(0), time.Duration(0), energy.Microjoules(0)
			second := func(s setup, idle, work float64) {
				t.Helper()
				u := float64(at/sec%20) / 20
				at += sec
				busy, total = busy+time.Duration(2*u*float64(sec)), total+energy.Microjoules((idle+work*u)*1e6)
				o := energy.Observation{
					At: at, CPUs: 2, Busy: busy, Usage: []energy.Usage{{ID: energy.System, CPU: busy}},
				}
				o.Root = []energy.Reading{{Domain: s.root, At: at, Total: total, Run: s.run, Quality: energy.Estimated}}
				for _, i := range s.parts {
					o.Parts = append(o.Parts, socket(i, at, total/4))
				}
				if a.Observe(&o, &out) {
					check(t, &out)
				}
			}
			for range 400 {
				second(setup{root: model}, 200, 100)
			}
			if w, settled := a.IdlePower(); !settled || math.Abs(float64(w)-200) > 2 {
				t.Fatalf("unexpected IdlePower() = %v W, settled %v", float64(w), settled)
			}
			state := a.AppendState(nil)
			a = energy.NewAttributor(energy.AttributorOptions{})
			if err := a.RestoreState(state); err != nil {
				t.Fatal(err)
			}
			for range 8 {
				second(c.then, 30, 60)
			}
			if w, settled := a.IdlePower(); (w < 100) != c.forget || settled == c.forget {
				t.Errorf("unexpected IdlePower() = %v W, settled %v", float64(w), settled)
			}
		})
	}
}

func TestCheckConservedAllocatesNothing(t *testing.T) {
	shares := []energy.Share{{ID: "pod/a/1", Dynamic: 4, Idle: 5}, {ID: "system", Dynamic: 6}}
	if n := testing.AllocsPerRun(100, func() {
		if err := energy.CheckConserved(21, 1, 2, 3, shares); err != nil {
			t.Error(err)
		}
	}); n > 0 {
		t.Errorf("got %v allocations, want 0", n)
	}
	for _, c := range []struct {
		want      energy.Microjoules
		idle      energy.Microjoules
		a, b      string
		dynamic   energy.Microjoules
		complaint string
	}{
		{21, -1, "a", "b", 4, "idle is -1 µJ: want a nonnegative amount"},
		{21, 1, "b", "a", 4, `shares are not sorted: "b" before "a"`},
		{22, 1, "a", "b", 4, "the parts add up to 21 µJ, want the measured 22 µJ"},
		{21, 1, "a", "b", -4, "dynamic energy of a is -4 µJ: want a nonnegative amount"},
		{21, 1, "a", "b", math.MaxInt64 - 5, "the sum of the parts exceeds 9223372036854775807 µJ"},
	} {
		shares[0].ID, shares[1].ID, shares[0].Dynamic = c.a, c.b, c.dynamic
		if err := energy.CheckConserved(c.want, c.idle, 2, 3, shares); err == nil || err.Error() != c.complaint {
			t.Errorf("CheckConserved() = %v, want %s", err, c.complaint)
		}
	}
}

// TestReplacedRoot verifies that no energy is lost or counted twice if another counter replaces a root that cannot be
// read, and when the first one returns.
func TestReplacedRoot(t *testing.T) {
	for _, test := range []struct {
		name                 string
		resets               bool // the packages start a new run before they become the root
		measured, unmeasured time.Duration
	}{
		{name: "counter that was read all the time", measured: 30*sec - 10*ms, unmeasured: 10 * ms},
		{name: "counter that was reset", resets: true, unmeasured: 10 * ms},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := energy.NewAttributor(energy.AttributorOptions{})
			var out energy.Attribution
			var end, unmeasured, cpu time.Duration
			run := uint32(0)
			observe := func(s int, byPackages bool, earlier int) bool {
				at := time.Duration(s) * sec
				read := func(s int) (w, p energy.Reading) {
					at := time.Duration(s)*sec + 10*ms // shortly after the CPU times
					w, p = wall(at, energy.Microjoules(s)*100e6), socket(0, at, energy.Microjoules(s)*40e6)
					return w, p
				}
				o := energy.Observation{At: at, CPUs: 2, Busy: at, Usage: usage(fmt.Sprint("pod/a/1 ", s*1000, " 0"))}
				w, p := read(s)
				p.Run = run
				switch {
				case byPackages:
					o.Root = []energy.Reading{p}
				case earlier >= 0:
					o.Root, o.Parts = []energy.Reading{w}, []energy.Reading{p}
				}
				if earlier > 0 {
					w, p := read(earlier)
					if !byPackages {
						p.Run = run
					}
					if o.EarlierRoot, o.EarlierParts = []energy.Reading{w}, []energy.Reading{p}; byPackages {
						o.EarlierRoot, o.EarlierParts = []energy.Reading{p}, nil
					}
				}
				if !a.Observe(&o, &out) {
					return false
				}
				check(t, &out)
				if end > 0 && out.Start != end {
					t.Fatalf("interval starts at %v, want %v", out.Start, end)
				}
				end = out.End
				unmeasured += out.Unmeasured
				for _, share := range out.Shares {
					cpu += share.CPU
				}
				return true
			}
			for s := 1; s <= 100; s++ { // the wall with packages inside
				observe(s, false, 0)
			}
			for s := 101; s < 130; s++ {
				if observe(s, false, -1) {
					t.Fatalf("interval %+v without readings", out)
				}
			}
			if test.resets {
				run++
			}
			before := unmeasured
			if !observe(130, true, 100) {
				t.Fatal("no interval with the new root")
			}
			if out.Measured != energy.Microjoules(test.measured.Seconds()*40e6) ||
				unmeasured-before != test.unmeasured || out.Platform != 0 {
				t.Errorf("interval of the new root = %+v, want %v of packages, %v unmeasured", out, test.measured,
					test.unmeasured)
			}
			for s := 131; s <= 300; s++ {
				observe(s, true, 0)
			}
			if !test.resets && unmeasured-before != test.unmeasured {
				t.Errorf("unmeasured time = %v, want %v", unmeasured-before, test.unmeasured)
			}
			if !observe(301, false, 300) || out.Measured < 99e6 || out.Measured > 101e6 || out.Platform < 59e6 ||
				out.Unmeasured != 10*ms {
				t.Errorf("interval after the return = %+v, want 100 J, 60 J of them of the platform", out)
			}
			if cpu < 299*sec || cpu > 301*sec {
				t.Errorf("CPU time of all shares = %v, want about 300 s", cpu)
			}
		})
	}
}
