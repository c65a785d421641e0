package energy_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// wall returns a reading of the whole machine.
func wall(at time.Duration, total energy.Microjoules) energy.Reading {
	return energy.Reading{
		Domain: energy.Domain{Kind: energy.Wall, Name: "wall"}, At: at, Total: total, Quality: energy.Measured,
	}
}

func socket(i int, at time.Duration, total energy.Microjoules) energy.Reading {
	d := energy.Domain{Kind: energy.Package, Name: fmt.Sprint("package-", i)}
	return energy.Reading{Domain: d, At: at, Total: total, Quality: energy.Measured}
}

// usage parses "ID milliseconds weight" lines into a sweep.
func usage(lines ...string) []energy.Usage {
	list := []energy.Usage{}
	for _, line := range lines {
		var u energy.Usage
		var cpu float64
		if _, err := fmt.Sscan(line, &u.ID, &cpu, &u.Weight); err != nil {
			panic(err)
		}
		u.CPU = time.Duration(cpu * float64(ms))
		list = append(list, u)
	}
	slices.SortFunc(list, func(a, b energy.Usage) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// idler returns an attributor that has learned that the node draws 40 W when idle and 100 W with one of two CPUs
// busy.
func idler(t testing.TB, policy energy.IdlePolicy) *energy.Attributor {
	t.Helper()
	a := energy.NewAttributor(energy.AttributorOptions{Idle: policy})
	var out energy.Attribution
	total, busy := energy.Microjoules(7e12), time.Duration(0)
	for s := range time.Duration(400) {
		u := float64(s%20) / 20
		total += energy.Microjoules((40 + 120*u) * 1e6)
		busy += time.Duration(2 * u * float64(sec))
		o := energy.Observation{
			At: (s + 1) * sec, CPUs: 2, Busy: busy, Root: []energy.Reading{wall((s+1)*sec, total)},
			Usage: []energy.Usage{{ID: energy.System, CPU: busy}},
		}
		a.Observe(&o, &out)
	}
	if w, settled := a.IdlePower(); !settled || math.Abs(float64(w)-40) > 1 {
		t.Fatalf("IdlePower() = %v W, settled %v, want 40 W, settled", float64(w), settled)
	}
	return a
}

// then observes s seconds after the 400 s of idler, with the given joules and CPU time since then.
func then(a *energy.Attributor, s float64, joules float64, busy time.Duration, list []energy.Usage,
	out *energy.Attribution,
) bool {
	at := 400*sec + time.Duration(s*float64(sec))
	o := energy.Observation{At: at, CPUs: 2, Busy: 400*sec*19/20 + busy, Usage: list}
	o.Root = []energy.Reading{wall(at, 7e12+400*97e6+energy.Joules(joules).Microjoules())}
	return a.Observe(&o, out)
}

func check(t testing.TB, out *energy.Attribution) {
	t.Helper()
	if err := out.Check(); err != nil {
		t.Fatal(err)
	}
}

// Kepler added the first reading, i.e. all energy since the machine was built, to its total.
func TestFirstReadingCountsNothing(t *testing.T) {
	var out energy.Attribution
	a := energy.NewAttributor(energy.AttributorOptions{})
	o := energy.Observation{
		At: sec, CPUs: 2, Busy: sec, Root: []energy.Reading{wall(sec, 5e15)}, Usage: usage("pod/a/1 1000 0"),
	}
	if a.Observe(&o, &out) {
		t.Fatalf("unexpected interval after the first reading: %+v", out)
	}
	o = energy.Observation{
		At: 2 * sec, CPUs: 2, Busy: 2 * sec, Root: []energy.Reading{wall(2*sec, 5e15+100e6)},
		Usage: usage("pod/a/1 2000 0"),
	}
	if !a.Observe(&o, &out) || out.Measured != 100e6 || out.Start != sec || out.End != 2*sec {
		t.Fatalf("unexpected interval after the second reading: %+v", out)
	}
	check(t, &out)
}

// Two pods with equal CPU usage are charged equally in each interval, as the Shapley value requires for
// exchangeable players.
func TestSymmetry(t *testing.T) {
	for _, policy := range []energy.IdlePolicy{energy.IdleApart, energy.IdleByRequests, energy.IdleEqually} {
		a := idler(t, policy)
		var out energy.Attribution
		list := func(s float64) []energy.Usage {
			cpu := fmt.Sprint(s * 333.333)
			return usage("pod/a/1 "+cpu+" 500", "pod/b/1 "+cpu+" 500", "system 0 0")
		}
		then(a, 1, 40, 0, list(0), &out)
		for s := 2.0; s < 50; s++ {
			if !then(a, s, 80*s-40+0.000_001, time.Duration(2*(s-1)*333.333*float64(ms)), list(s-1), &out) {
				t.Fatal("Observe() = false, want an interval")
			}
			check(t, &out)
			x, y := out.Shares[0], out.Shares[1]
			if x.CPU != y.CPU || (x.Dynamic-y.Dynamic).Joules() > 1e-6 || x.Dynamic < y.Dynamic || x.Idle-y.Idle > 1 ||
				x.Idle < y.Idle {
				t.Fatalf("policy %v: equal pods are charged differently: %+v and %+v", policy, x, y)
			}
			if x.Dynamic < 20e6 {
				t.Fatalf("policy %v: dynamic energy of a busy pod is %v, want at least 20 J", policy, x.Dynamic)
			}
		}
	}
}

// Another tool charged each idle pod with the idle energy of the whole node.
func TestIdlePodsPayIdleEnergyOnce(t *testing.T) {
	for _, policy := range []energy.IdlePolicy{energy.IdleApart, energy.IdleByRequests, energy.IdleEqually} {
		for _, n := range []int{1, 7, 100} {
			a := idler(t, policy)
			var out energy.Attribution
			var lines []string
			for i := range n {
				lines = append(lines, fmt.Sprintf("pod/%03d/1 0 100", i))
			}
			list := usage(append(lines, "system 0 0")...)
			then(a, 1, 40, 0, list, &out)
			if !then(a, 2, 80, 0, list, &out) {
				t.Fatal("Observe() = false, want an interval")
			}
			check(t, &out)
			shared := energy.Microjoules(0)
			for _, s := range out.Shares {
				shared += s.Idle
				if s.Dynamic != 0 || (s.ID == energy.System && s.Idle != 0) {
					t.Errorf("%v, %d pods: %+v", policy, n, s)
				}
			}
			want := map[energy.IdlePolicy]energy.Microjoules{
				energy.IdleApart: 0, energy.IdleByRequests: energy.Microjoules(min(n*100, 2000)) * 40e6 / 2000,
				energy.IdleEqually: 40e6,
			}[policy]
			if shared != want || out.Idle+shared != 40e6 {
				t.Errorf("policy %v: %d idle pods are charged %v of 40 J, want %v; %v remain idle", policy, n, shared, want, out.Idle)
			}
		}
	}
}

func TestIdlePolicies(t *testing.T) {
	for _, c := range []struct {
		name   string
		policy energy.IdlePolicy
		list   []energy.Usage
		want   string // idle energy of each share, and the undistributed rest
	}{
		{"apart", energy.IdleApart, usage("pod/a/1 0 500", "vm/x 0 500"), "0 0 40000000"},
		{"requests", energy.IdleByRequests, usage("pod/a/1 0 500", "pod/b 0 0", "pod/b/1 0 100", "system 0 9",
			"vm/x 0 400"), "10000000 0 2000000 0 8000000 20000000"},
		{
			"requests of all CPUs", energy.IdleByRequests, usage("pod/a/1 0 500", "pod/b/1 0 1500"),
			"10000000 30000000 0",
		},
		{"requests of more", energy.IdleByRequests, usage("pod/a/1 0 3000", "pod/b/1 0 1000"), "30000000 10000000 0"},
		{"no requests", energy.IdleByRequests, usage("pod/a/1 0 0", "system 0 0"), "0 0 40000000"},
		{
			"other groups have no requests", energy.IdleByRequests, usage("cgroup//slurm/1 0 500", "pod/a/1 0 500"),
			"0 10000000 30000000",
		},
		{
			"equally by pod, not by container", energy.IdleEqually,
			usage("pod/a 0 0", "pod/a/1 0 0", "pod/a/2 0 0", "vm/x 0 0"), "20000000 0 0 20000000 0",
		},
		{
			"a pod without its own share, only containers", energy.IdleEqually,
			usage("pod/a/1 0 0", "pod/a/2 0 0", "pod/a/3 0 0", "vm/x 0 0"), "6666667 6666667 6666666 20000000 0",
		},
		{
			"remainders", energy.IdleEqually, usage("pod/a/1 0 0", "pod/b/1 0 0", "vm/x 0 0"),
			"13333334 13333333 13333333 0",
		},
		{"equally without pods", energy.IdleEqually, usage("cgroup//a 0 9", "system 0 0"), "0 0 40000000"},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := idler(t, c.policy)
			var out energy.Attribution
			then(a, 1, 40, 0, c.list, &out)
			if !then(a, 2, 80, 0, c.list, &out) {
				t.Fatal("Observe() = false, want an interval")
			}
			check(t, &out)
			var amounts []int64
			for _, s := range out.Shares {
				amounts = append(amounts, int64(s.Idle))
			}
			if got := strings.Trim(fmt.Sprint(append(amounts, int64(out.Idle))), "[]"); got != c.want {
				t.Errorf("idle energy = %s, want %s: %+v", got, c.want, out.Shares)
			}
		})
	}
	for p := energy.IdleApart; p <= energy.IdleEqually; p++ {
		text, _ := p.MarshalText()
		var again energy.IdlePolicy
		if err := again.UnmarshalText(text); err != nil || again != p {
			t.Errorf("UnmarshalText(%v) = %v, error %v", p, again, err)
		}
	}
	if err := new(energy.IdlePolicy).UnmarshalText([]byte("fair")); err == nil ||
		!strings.Contains(err.Error(), "fair") {
		t.Errorf("expected an error that contains the policy, got %v", err)
	}
}

// Idle energy is computed by the fit and limited by the measured energy; the difference is carried to later intervals.
func TestIdleEnergyIsCarried(t *testing.T) {
	a := idler(t, energy.IdleApart)
	w, _ := a.IdlePower()
	var out energy.Attribution
	list := func(cpu float64) []energy.Usage { return usage(fmt.Sprintf("pod/a/1 %v 0", cpu), "system 0 0") }
	then(a, 1, 0, 0, list(0), &out)
	idle := energy.Microjoules(0)
	for i, joules := range []float64{10, 20, 170, 270} {
		s := float64(i + 2)
		then(a, s, joules, time.Duration(s-1)*500*ms, list((s-1)*500), &out)
		check(t, &out)
		if idle += out.Idle; i == 0 && (out.Idle != 10e6 || out.Shares[0].Dynamic != 0) {
			t.Errorf("idle energy = %v, want 10 J: %+v", out.Idle, out)
		}
	}
	if want := w.For(5 * sec).Microjoules(); (idle-want).Joules() > 2 || (idle-want).Joules() < -2 {
		t.Errorf("total idle energy = %v, want %v", idle, want)
	}
}

func TestBusyTimeWithoutConsumerIsUnknown(t *testing.T) {
	a := idler(t, energy.IdleApart)
	var out energy.Attribution
	then(a, 1, 100, 0, usage("pod/a/1 0 0"), &out)
	then(a, 2, 200, sec, usage("pod/a/1 750 0"), &out)
	check(t, &out)
	if d := out.Shares[0].Dynamic; out.Unknown != (100e6-out.Idle+2)/4 || d != 100e6-out.Idle-out.Unknown {
		t.Errorf("expected a quarter of the dynamic energy to be unknown: %+v", out)
	}
	// If the node's counter was read slightly later than those of the consumers, the consumers catch up.
	then(a, 3, 300, 2*sec, usage("pod/a/1 1750 0"), &out)
	if out.Unknown != 0 {
		t.Errorf("%+v", out)
	}
	then(a, 4, 400, 3*sec-100*ms, usage("pod/a/1 2750 0"), &out)
	then(a, 5, 500, 4*sec, usage("pod/a/1 3750 0"), &out)
	if check(t, &out); out.Unknown != 0 {
		t.Errorf("unexpected unknown energy caused by clock skew: %+v", out)
	}
	// Without the CPU time of the node, unattributed usage cannot be detected.
	then(a, 6, 600, -760*sec, usage("pod/a/1 4000 0"), &out)
	if check(t, &out); out.Unknown != 0 || out.Shares[0].Dynamic+out.Idle != 100e6 {
		t.Errorf("%+v", out)
	}
	then(a, 7, 700, 5*sec, usage("pod/a/1 4500 0"), &out)
	if check(t, &out); out.Unknown != 0 {
		t.Errorf("unexpected unknown energy after the node's CPU time is available again: %+v", out)
	}
}

func TestMissedSweepIsUnknown(t *testing.T) {
	a := idler(t, energy.IdleApart)
	var out energy.Attribution
	then(a, 1, 100, 0, usage("pod/a/1 0 0", "system 0 0"), &out)
	if !then(a, 2, 200, sec, nil, &out) || out.Unknown != 100e6 || len(out.Shares) != 0 || out.Unmeasured != 0 {
		t.Errorf("unexpected interval without a sweep: %+v", out)
	}
	check(t, &out)
	then(a, 3, 300, 2*sec, usage("pod/a/1 2000 0", "system 0 0"), &out)
	if check(t, &out); out.Unknown != 0 || out.Shares[0].CPU != 2*sec || out.Shares[0].Dynamic+out.Idle != 100e6 {
		t.Errorf("unexpected interval after the next sweep: %+v", out)
	}
}

func TestConsumersComeAndGo(t *testing.T) {
	a := idler(t, energy.IdleApart)
	var out energy.Attribution
	observe := func(s float64, busy float64, ended []energy.Usage, lines ...string) string {
		t.Helper()
		o := energy.Observation{
			At: 400*sec + time.Duration(s*float64(sec)), CPUs: 2, Busy: 380*sec + time.Duration(busy*float64(ms)),
			Usage: usage(lines...), Ended: ended,
		}
		o.Root = []energy.Reading{wall(o.At, 7e12+400*97e6+energy.Joules(100*s).Microjoules())}
		if !a.Observe(&o, &out) {
			t.Fatal("Observe() = false, want an interval")
		}
		check(t, &out)
		var shares []string
		for _, s := range out.Shares {
			mark := map[bool]string{true: "!"}[s.Ended]
			shares = append(shares, fmt.Sprintf("%s %d%s", s.ID, s.CPU.Milliseconds(), mark))
		}
		return strings.Join(shares, " ")
	}
	for i, c := range []struct {
		busy  float64
		ended []energy.Usage
		lines []string
		want  string
	}{
		{0, nil, []string{"pod/a/1 0 0"}, "pod/a/1 0"},
		{600, nil, []string{"pod/a/1 500 0", "pod/b/1 100 0"}, "pod/a/1 500 pod/b/1 100"},
		{800, usage("pod/a/1 600 0"), []string{"pod/b/1 200 0"}, "pod/a/1 100! pod/b/1 100"},
		{900, nil, []string{"pod/b/1 300 0"}, "pod/b/1 100"},
		{1000, nil, []string{}, "system 0!"}, // the system consumer of idler was missed five times
		{1100, nil, []string{"pod/b/1 450 0"}, "pod/b/1 150"},
		{1200, usage("pod/b/1 480 0", "pod/c/1 20 0"), []string{"pod/b/1 50 0"}, "pod/b/1 80 pod/c/1 20!"},
		{1300, nil, []string{"pod/b/1 30 0"}, "pod/b/1 30"},
		{1400, nil, []string{"pod/b/1 30 0", "pod/d/1 3600000 0"}, "pod/b/1 0 pod/d/1 0"},
		{1500, nil, []string{"pod/b/1 30 0", "pod/d/1 3600100 0"}, "pod/b/1 0 pod/d/1 100"},
	} {
		// the first tick only sets the baseline
		if got := observe(float64(i+1), c.busy, c.ended, c.lines...); got != c.want && i > 0 {
			t.Errorf("tick %d: shares = %q, want %q", i+1, got, c.want)
		}
	}
}

func TestSlowRoot(t *testing.T) {
	a := energy.NewAttributor(energy.AttributorOptions{})
	var out energy.Attribution
	intervals, cpu, sum := 0, time.Duration(0), energy.Microjoules(0)
	var ended int
	for s := range time.Duration(61) {
		refreshed := (s - s%5) * sec
		o := energy.Observation{
			At: s*sec + sec/2, CPUs: 4, Busy: s * sec,
			Root: []energy.Reading{wall(refreshed+3*sec/5, energy.Microjoules(refreshed/sec)*100e6)},
		}
		o.Usage = usage(fmt.Sprintf("pod/a/1 %d 0", s*500), "system 0 0")
		if s == 13 {
			o.Ended = usage("pod/b/1 77 0") // started and ended between two refreshes and two sweeps
		}
		if !a.Observe(&o, &out) {
			continue
		}
		check(t, &out)
		intervals++
		sum += out.Measured
		for _, share := range out.Shares {
			cpu += share.CPU
			if share.Ended {
				ended++
				if share.CPU != 77*ms || share.Dynamic == 0 {
					t.Errorf("unexpected share of a short-lived consumer: %+v", share)
				}
			}
		}
		if out.Unmeasured > 0 || (s > 5 && out.End-out.Start != 5*sec) {
			t.Errorf("at %d s: %+v", s, out)
		}
	}
	// The last reading is at 60.6 s, and the last interval ends at 60.5 s.
	if intervals != 12 || cpu != 30*sec+77*ms || ended != 1 || sum != 5500e6+500e6*49/50 {
		t.Errorf("unexpected totals: %d intervals, %v of CPU time, %d ended, %v", intervals, cpu, ended, sum)
	}
}

func TestUnmeasured(t *testing.T) {
	root := func(s float64, i int, run uint32) energy.Reading {
		r := socket(i, time.Duration(s*float64(sec)), energy.Microjoules(s*50e6)+1e9)
		r.Run = run
		return r
	}
	var none []energy.Reading
	type step struct {
		s    float64
		root []energy.Reading
		want string // start end measured unmeasured; "" if no interval is expected
	}
	both := func(s float64) []energy.Reading { return []energy.Reading{root(s, 0, 0), root(s, 1, 0)} }
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"a run changes", []step{
			{1, both(1), ""},
			{2, both(2), "1 2 100 0"},
			{3, []energy.Reading{root(3, 0, 1), root(3, 1, 0)}, "2 3 0 1"},
			{4, []energy.Reading{root(4, 0, 1), root(4, 1, 0)}, "3 4 100 0"},
		}},
		{"a counter is missing for a while", []step{
			{1, both(1), ""}, {2, both(2)[:1], ""}, {3, both(3)[1:], ""}, {4, both(4), "1 4 300 0"},
		}},
		{"a counter is missing permanently", []step{
			{1, both(1), ""},
			{2, both(2), "1 2 100 0"},
			{40, both(40)[:1], ""},
			{63, both(63)[:1], "2 63 0 61"},
			{64, both(64)[:1], "63 64 50 0"},
		}},
		{"a counter joins", []step{{1, both(1)[:1], ""}, {2, both(2), "1 2 0 1"}, {3, both(3), "2 3 100 0"}}},
		{"another meter takes over", []step{
			{1, both(1)[:1], ""},
			{2, []energy.Reading{wall(2*sec, 5)}, "1 2 0 1"},
			{3, []energy.Reading{wall(3*sec, 1e6+5)}, "2 3 1 0"},
		}},
		{"no meter at all", []step{
			{1, none, ""}, {2, none, "1 2 0 1"}, {3, both(3), "2 3 0 1"}, {4, both(4), "3 4 100 0"},
		}},
		{"a meter that hangs", []step{
			{1, both(1), ""},
			{2, both(2), "1 2 100 0"},
			{30, both(2), ""},
			{63, both(2), "2 63 0 61"},
			{64, both(2), ""},
			{65, both(65), "63 65 6300 0"},
			{66, both(66), "65 66 100 0"},
		}},
		{"the root is missing", []step{
			{1, both(1), ""},
			{2, both(2), "1 2 100 0"},
			{63, none, "2 63 0 61"},
			{64, none, ""},
			{124, none, "63 124 0 61"},
			{125, both(125), "124 125 12300 0"},
		}},
		{"a root that comes back as another run", []step{
			{1, both(1), ""},
			{2, both(2), "1 2 100 0"},
			{63, none, "2 63 0 61"},
			{64, []energy.Reading{root(64, 0, 1), root(64, 1, 1)}, "63 64 0 1"},
			{65, []energy.Reading{root(65, 0, 1), root(65, 1, 1)}, "64 65 100 0"},
		}},
		{"readings that fall", []step{
			{1, both(1), ""}, {2, []energy.Reading{
				{Domain: root(2, 0, 0).Domain, At: 2 * sec, Total: 5}, root(2, 1, 0),
			}, "1 2 0 1"},
		}},
		{"negative readings", []step{
			{1, []energy.Reading{wall(sec, -5)}, ""}, {2, []energy.Reading{wall(2*sec, -4)}, "1 2 0 1"},
		}},
		{"a long sleep", []step{{1, both(1), ""}, {10_000, both(10_000), "1 10000 999900 0"}}},
		{"readings before the sweep", []step{
			{1.1, both(1), ""}, {2.1, both(2), "1 2 100 0"}, {3.1, both(3), "2 3 100 0"},
		}},
		{"readings after the sweep", []step{
			{1, both(1.5), ""}, {2, both(2.5), "1.5 2 50 0"}, {3, both(3.5), "2 3 100 0"},
		}},
		{"a sweep before the last readings", []step{
			{1, both(1), ""}, {2, both(2.9), "1 2 100 0"}, {2.5, both(3.5), "2 2.5 50 0"}, {4, both(4), "2.5 4 150 0"},
		}},
		{"counters read at different times", []step{
			{1, []energy.Reading{root(1, 0, 0), root(1.5, 1, 0)}, ""},
			{2, []energy.Reading{root(2, 0, 0), root(2.5, 1, 0)}, "1.5 2 50 0"},
			{3, []energy.Reading{root(3, 0, 0), root(3.5, 1, 0)}, "2 3 100 0"},
		}},
		{"the clock of another boot", []step{{1000, both(1000), ""}, {1, both(1), ""}, {2, both(2), "1 2 100 0"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := energy.NewAttributor(energy.AttributorOptions{Patience: time.Minute})
			var out energy.Attribution
			for _, s := range c.steps {
				at := time.Duration(s.s * float64(sec))
				o := energy.Observation{
					At: at, CPUs: 2, Busy: at, Root: s.root, Usage: []energy.Usage{{ID: "system", CPU: at}},
				}
				got := ""
				if a.Observe(&o, &out) {
					check(t, &out)
					got = fmt.Sprintf("%v %v %v %v", out.Start.Seconds(), out.End.Seconds(), float64(out.Measured)/1e6,
						out.Unmeasured.Seconds())
				}
				if got != s.want {
					t.Errorf("at %v s: interval = %q, want %q", s.s, got, s.want)
				}
			}
		})
	}
}

func TestPlatform(t *testing.T) {
	var out energy.Attribution
	var a *energy.Attributor
	second, rootTotal, partTotal := 0, energy.Microjoules(0), energy.Microjoules(0)
	// step advances the time by a second in which the wall meter and the part used the given energy. The part is
	// only observed if read is set.
	step := func(wallJoules, partJoules energy.Microjoules, read bool) energy.Microjoules {
		t.Helper()
		second++
		rootTotal, partTotal = rootTotal+wallJoules*1e6, partTotal+partJoules*1e6
		at := time.Duration(second) * sec
		o := energy.Observation{
			At: at, CPUs: 2, Busy: at, Root: []energy.Reading{wall(at, rootTotal)},
			Usage: []energy.Usage{{ID: "system", CPU: at}},
		}
		if read {
			o.Parts = []energy.Reading{socket(0, at, partTotal)}
		}
		if a.Observe(&o, &out) {
			check(t, &out)
		}
		return out.Platform / 1e6
	}
	begin := func() {
		a = energy.NewAttributor(energy.AttributorOptions{})
		out = energy.Attribution{}
		step(0, 0, true)
	}
	expect := func(what string, got, want energy.Microjoules) {
		t.Helper()
		if got != want {
			t.Errorf("%s: got %d J, want %d J", what, got, want)
		}
	}
	begin()
	expect("root minus part", step(100, 70, true), 30)
	expect("a missing part is extrapolated", step(100, 60, false), 30)
	expect("the next reading corrects the extrapolation", step(100, 70, true), 40)
	expect("after the correction", step(100, 70, true), 30)
	expect("a part exceeds the root", step(100, 130, true), 0)
	expect("the excess is compensated", step(100, 50, true), 20)
	begin()
	step(100, 70, true)
	for range 8 {
		expect("a part exceeds the root for a long time", step(100, 200, true), 0)
	}
	for range 8 {
		step(100, 200, true)
	}
	if out.Idle+out.Shares[0].Dynamic != 100e6 {
		t.Errorf("expected all energy to be idle or dynamic if parts contradict the root: %+v", out)
	}
	for range 10 {
		expect("an excess of up to ten seconds is compensated", step(100, 0, true), 0)
	}
	expect("after the compensation", step(100, 0, true), 100)
	begin()
	step(100, 70, true)
	for range 60 {
		step(100, 70, false)
	}
	expect("no platform energy after a part is lost", step(100, 70, false), 0)
	a = energy.NewAttributor(energy.AttributorOptions{})
	step(100, 70, false)
	expect("no parts", step(100, 70, false), 0)
	step(100, 70, true)
	expect("no platform energy when a part is added", out.Platform/1e6, 0)
	expect("unknown energy when a part is added", out.Unknown/1e6, 100)
	expect("after the second reading of a new part", step(100, 70, true), 30)
}

func TestQualityIsTheLeast(t *testing.T) {
	a := energy.NewAttributor(energy.AttributorOptions{})
	var out energy.Attribution
	for s := range time.Duration(3) {
		x, y := socket(0, s*sec, 0), socket(1, s*sec, 0)
		y.Quality = energy.Derived
		a.Observe(&energy.Observation{At: s * sec, CPUs: 1, Root: []energy.Reading{x, y}, Usage: usage()}, &out)
	}
	if out.Quality != energy.Derived {
		t.Errorf("quality of measured and derived = %v, want derived", out.Quality)
	}
}

// A host attributes its energy to its virtual machines and publishes the result, and each guest attributes that
// energy to its pods. Sums over nodes exclude nodes with a parent and therefore equal the energy counted by the
// host's meter.
func TestHostAndGuestsAreSummedOnce(t *testing.T) {
	type guest struct {
		vm      string
		total   energy.Microjoules // as published
		counter *energy.Counter
		a       *energy.Attributor
		cpu     [3]time.Duration
		batch   batch.Batch
		first   energy.Microjoules
	}
	rng := rand.New(rand.NewPCG(10, 11))
	host := energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdleByRequests})
	hostBatch := batch.Batch{Stream: batch.Stream{Node: "host"}}
	var guests []*guest
	for i := range 5 {
		g := &guest{vm: fmt.Sprint("vm-", i), first: -1}
		g.a = energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdlePolicy(i % 3)})
		g.counter = energy.NewCounter(energy.CounterOptions{
			Max:    20_000,
			Domain: energy.Domain{Kind: energy.Guest, Name: "guest"}, Quality: energy.Derived,
		})
		g.batch = batch.Batch{Stream: batch.Stream{Node: g.vm}, Parent: &batch.Parent{Host: "host", VM: g.vm}}
		guests = append(guests, g)
	}
	book := func(b *batch.Batch, out *energy.Attribution) {
		check(t, out)
		b.Measured, b.Idle, b.Platform, b.Unknown = b.Measured+out.Measured, b.Idle+out.Idle, b.Platform+out.Platform,
			b.Unknown+out.Unknown
		for _, s := range out.Shares {
			i, found := slices.BinarySearchFunc(b.Shares, s, func(a, b energy.Share) int {
				return strings.Compare(a.ID, b.ID)
			})
			if !found {
				b.Shares = slices.Insert(b.Shares, i, energy.Share{ID: s.ID})
			}
			b.Shares[i].Dynamic, b.Shares[i].Idle, b.Shares[i].CPU = b.Shares[i].Dynamic+s.Dynamic,
				b.Shares[i].Idle+s.Idle, b.Shares[i].CPU+s.CPU
		}
	}
	meter, out := energy.NewCounter(pkg0(1000)), energy.Attribution{}
	truth, at, hostBusy := uint64(200e9), sec, time.Duration(0)
	start, booked := truth, energy.Microjoules(0)
	for tick := range 1000 {
		dt := 900*ms + time.Duration(rng.Int64N(int64(200*ms)))
		at += dt
		usages := []energy.Usage{}
		for _, g := range guests {
			sum := time.Duration(0)
			for p := range g.cpu {
				g.cpu[p] += time.Duration(rng.Int64N(int64(dt)))
				sum += g.cpu[p]
			}
			usages = append(usages, energy.Usage{ID: energy.VMID(g.vm), CPU: sum, Weight: 3000})
		}
		hostBusy = 0
		for _, u := range usages {
			hostBusy += u.CPU
		}
		used := uint64(100e6 + rng.Int64N(300e6))
		truth += used
		// The host's interval ends with the sweep, shortly before the reading. The last interval ends with the
		// reading itself.
		o := energy.Observation{At: at, CPUs: 32, Busy: hostBusy, Usage: usages}
		read := at + time.Duration(rng.Int64N(int64(10*ms)))
		if tick == 999 {
			read = at
		}
		o.Root = []energy.Reading{meter.Next(truth%(rapl+1), read)}
		if tick == 0 {
			start = truth
		}
		if !host.Observe(&o, &out) {
			continue
		}
		book(&hostBatch, &out)
		booked += out.Measured
		for _, s := range out.Shares {
			for _, g := range guests {
				if energy.VMID(g.vm) == s.ID {
					g.total += s.Dynamic + s.Idle
				}
			}
		}
		for i, g := range guests {
			if (tick+i)%7 == 0 {
				continue // guests have their own ticks and miss some of them
			}
			gat := at + time.Duration(i)*20*ms
			go_ := energy.Observation{At: gat, CPUs: 4}
			for p, cpu := range g.cpu {
				go_.Usage = append(go_.Usage, energy.Usage{
					ID: energy.ContainerID(fmt.Sprint("uid-", p), "c"), CPU: cpu, Weight: 1000,
				})
				go_.Busy += cpu
			}
			reading := g.counter.Next(uint64(g.total), gat+ms)
			if g.first < 0 {
				g.first = g.total
			}
			go_.Root = []energy.Reading{reading}
			var gout energy.Attribution
			if g.a.Observe(&go_, &gout) {
				book(&g.batch, &gout)
			}
		}
	}
	if want := energy.Microjoules(truth - start); hostBatch.Measured != booked || booked != want {
		t.Errorf("the host's batches measured %d µJ, want %d µJ as on its meter", hostBatch.Measured, want)
	}
	sum, all := energy.Microjoules(0), energy.Microjoules(0)
	batches := []batch.Batch{hostBatch}
	for _, g := range guests {
		batches = append(batches, g.batch)
		published := energy.Microjoules(0)
		for _, s := range hostBatch.Shares {
			if s.ID == energy.VMID(g.vm) {
				published = s.Dynamic + s.Idle
			}
		}
		if left := published - g.first - g.batch.Measured; published != g.total || left < 0 || left > 2e9 {
			t.Errorf("guest %s measured %d µJ of the published %d µJ", g.vm, g.batch.Measured, published-g.first)
		}
	}
	for _, b := range batches {
		if err := energy.CheckConserved(b.Measured, b.Idle, b.Platform, b.Unknown, b.Shares); err != nil {
			t.Errorf("%s: %v", b.Stream.Node, err)
		}
		if all += b.Measured; b.Parent == nil {
			sum += b.Measured
		}
	}
	if sum != energy.Microjoules(truth-start) || all < sum*3/2 {
		t.Errorf("sum without guests is %d µJ and with guests %d µJ, want %d µJ without guests", sum, all, truth-start)
	}
}

// busyNode returns a generator of observations of a node with n busy containers in pods of two.
func busyNode(n int) (next func(*energy.Observation)) {
	rng := rand.New(rand.NewPCG(12, uint64(n)))
	ids := make([]energy.Usage, n)
	for i := range ids {
		pod := fmt.Sprintf("%08x-1234-4321-89ab-%012x", uint32(i/2)*0x9e3779b1, i/2)
		ids[i] = energy.Usage{ID: energy.ContainerID(pod, fmt.Sprintf("%064x", i)), Weight: 100}
	}
	ids = append(ids, energy.Usage{ID: energy.System})
	slices.SortFunc(ids, func(a, b energy.Usage) int { return strings.Compare(a.ID, b.ID) })
	at, total, part := time.Duration(0), energy.Microjoules(0), energy.Microjoules(0)
	root, parts := make([]energy.Reading, 1), make([]energy.Reading, 2)
	return func(o *energy.Observation) {
		at += sec
		for i := range ids {
			d := time.Duration(rng.Int64N(int64(30 * ms)))
			ids[i].CPU += d
			o.Busy += d
		}
		total += energy.Microjoules(200e6 + rng.Int64N(20e6))
		part += energy.Microjoules(60e6 + rng.Int64N(20e6))
		root[0], parts[0], parts[1] = wall(at+5*ms, total), socket0, socket1
		parts[0].At, parts[0].Total, parts[1].At, parts[1].Total = at+6*ms, part, at+7*ms, part
		o.At, o.CPUs, o.Root, o.Parts, o.Usage = at, 32, root, parts, ids
	}
}

var socket0, socket1 = socket(0, 0, 0), socket(1, 0, 0)

func TestAttributorAllocatesNothing(t *testing.T) {
	for _, policy := range []energy.IdlePolicy{energy.IdleApart, energy.IdleByRequests, energy.IdleEqually} {
		a := energy.NewAttributor(energy.AttributorOptions{Idle: policy})
		var out energy.Attribution
		var o energy.Observation
		var state []byte
		next := busyNode(500)
		step := func() {
			next(&o)
			a.Observe(&o, &out)
			state = a.AppendState(state[:0])
		}
		for range 60 {
			step()
		}
		if n := testing.AllocsPerRun(50, step); n > 0.5 {
			t.Errorf("policy %v: got %v allocations, want 0", policy, n)
		}
		check(t, &out)
		if len(out.Shares) != 501 || out.Platform == 0 {
			t.Errorf("got %d shares and platform energy %v, want 501 and more than 0", len(out.Shares), out.Platform)
		}
	}
}

func benchmarkAttributor(b *testing.B, n int) {
	a := energy.NewAttributor(energy.AttributorOptions{Idle: energy.IdleByRequests})
	var out energy.Attribution
	var o energy.Observation
	next := busyNode(n)
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		next(&o)
		b.StartTimer()
		a.Observe(&o, &out)
	}
	check(b, &out)
}

func BenchmarkAttributor250(b *testing.B)  { benchmarkAttributor(b, 250) }
func BenchmarkAttributor1000(b *testing.B) { benchmarkAttributor(b, 1000) }

func BenchmarkAttributorState1000(b *testing.B) {
	a := energy.NewAttributor(energy.AttributorOptions{})
	var out energy.Attribution
	var o energy.Observation
	next := busyNode(1000)
	for range 10 {
		next(&o)
		a.Observe(&o, &out)
	}
	var state []byte
	b.ReportAllocs()
	for b.Loop() {
		state = a.AppendState(state[:0])
	}
	b.ReportMetric(float64(len(state)), "bytes")
}
