package sleep_test

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/test/kit/memtest"
)

// checkLimit checks that a plan wakes as many machines as the limit permits, and not fewer if wake-ups are
// postponed.
func checkLimit(t *rapid.T, s *sleep.Snapshot, plan *sleep.Plan) {
	if s.Policy.WakesPerMinute == 0 {
		return
	}
	wakes, postponed, recent := 0, 0, 0
	for i, v := range plan.Verdicts {
		if s.Now.Sub(s.Machines[i].Woken).Abs() < time.Minute {
			recent++
		}
		if v.Do == sleep.Wake {
			wakes++
		}
		if v.Reason == sleep.WakeLimit {
			if postponed++; !v.Until.After(s.Now) || plan.Next.IsZero() || plan.Next.After(v.Until) {
				t.Fatalf("wake-up postponed until %v, but next decision at %v", v.Until, plan.Next)
			}
		}
	}
	limit := max(s.Policy.WakesPerMinute-recent, 0)
	if wakes > limit || postponed > 0 && wakes < limit {
		t.Fatalf("%d machines woken and %d postponed after %d in the last minute", wakes, postponed, recent)
	}
}

// fleet is a group of sleeping machines that boot immediately when they are woken.
type fleet struct {
	sleep.Snapshot
	wakes []string // "seconds owner" of each wake-up
}

func newFleet(machines, limit int) *fleet {
	f := &fleet{Snapshot: sleep.Snapshot{Now: t0, Policy: sleep.Policy{WakesPerMinute: limit}}}
	for i := range machines {
		f.Machines = append(f.Machines, machine(fmt.Sprintf("m%03d", i), small, sleep.Asleep))
	}
	return f
}

// wait adds pods of an owner, each requiring a separate machine.
func (f *fleet) wait(owner string, pods int) {
	for i := range pods {
		f.Needs = append(f.Needs, sleep.Need{Job: fmt.Sprint(owner, i), Owner: owner, Request: cores(8)})
	}
}

// run makes a decision every five seconds and applies it.
func (f *fleet) run(d time.Duration) {
	for end := f.Now.Add(d); f.Now.Before(end); f.Now = f.Now.Add(5 * time.Second) {
		plan := sleep.Decide(&f.Snapshot)
		for i, v := range plan.Verdicts {
			if v.Do != sleep.Wake {
				continue
			}
			m := &f.Machines[i]
			m.Woken, m.WokenFor, m.State, m.Since = f.Now, v.Owner, sleep.Awake, f.Now
			if v.Owner != "" {
				m.Jobs, m.Free = 1, sched.Resources{}
			}
			f.wakes = append(f.wakes, fmt.Sprintf("%.0f %s", f.Now.Sub(t0).Seconds(), v.Owner))
			f.Needs = slices.DeleteFunc(f.Needs, func(n sleep.Need) bool { return n.Job == v.For })
		}
	}
}

func TestWakesAreLimitedPerMinute(t *testing.T) {
	f := newFleet(25, 10)
	for i := range f.Machines {
		f.Machines[i].Jobs, f.Machines[i].Owner, f.Machines[i].ByHand = 1, "tenant", true
	}
	f.run(3 * time.Minute)
	want := slices.Concat(slices.Repeat([]string{"0 tenant"}, 10), slices.Repeat([]string{"60 tenant"}, 10),
		slices.Repeat([]string{"120 tenant"}, 5))
	if !slices.Equal(f.wakes, want) {
		t.Errorf("wake-ups: %v", f.wakes)
	}
	f = newFleet(25, 0)
	f.wait("tenant", 25)
	if f.run(time.Second); len(f.wakes) != 25 {
		t.Errorf("woke %d machines without a limit, want 25", len(f.wakes))
	}
}

// TestReplicasWhoseClocksDifferShareTheLimit checks that a replica with a clock that is behind counts the wake
// orders of the other replica although their times are in its future, and the same for a clock that is ahead.
func TestReplicasWhoseClocksDifferShareTheLimit(t *testing.T) {
	for _, skew := range []time.Duration{-500 * time.Millisecond, 500 * time.Millisecond} {
		f := newFleet(25, 10)
		f.wait("a", 20)
		f.run(time.Second)
		f.wait("b", 1)
		f.Now = t0.Add(skew) // the other replica decides at the same time
		if f.run(time.Second); len(f.wakes) != 10 {
			t.Errorf("second clock is %v ahead: woke %d machines immediately, want 10", skew, len(f.wakes))
		}
		f.Now = t0.Add(time.Minute + time.Second)
		if f.run(time.Second); len(f.wakes) != 20 || !slices.Contains(f.wakes, "61 b") {
			t.Errorf("second clock is %v ahead: wake-ups = %v, want 10 more after a minute, one of them for b", skew,
				f.wakes)
		}
	}
}

// TestOwnersShareWakes checks that an owner with one pod does not wait for hundreds of earlier pods of another
// owner, even if only one machine may be woken per minute.
func TestOwnersShareWakes(t *testing.T) {
	for limit, want := range map[int]string{
		1: "0 a,60 a,120 b,180 a",
		4: "0 a,0 a,0 a,0 a,60 a,60 a,60 a,60 a,120 a,120 a,120 a,120 b,180 a,180 a,180 a,180 a",
	} {
		f := newFleet(100, limit)
		f.wait("a", 90)
		f.run(90 * time.Second)
		f.wait("b", 1)
		f.run(120 * time.Second)
		if got := strings.Join(f.wakes, ","); got != want {
			t.Errorf("limit %d: wake-ups = %s, want %s", limit, got, want)
		}
	}
}

// TestWorkBoundByHandWakesLast checks that manually bound work has the lowest priority for waking machines.
func TestWorkBoundByHandWakesLast(t *testing.T) {
	f := newFleet(6, 1)
	f.Policy.Headroom, f.Largest = 0.1, cores(1)
	for i := range 3 {
		f.Machines[i].Jobs, f.Machines[i].Owner, f.Machines[i].ByHand = 1, "tenant", i > 0
	}
	f.Machines[1].Closed, f.Machines[2].Closed = true, true // so that they are not woken for other reasons
	f.Needs = []sleep.Need{{Job: "x", Owner: "other", Request: cores(8), Machines: []string{"m003"}}}
	f.run(6 * time.Minute)
	if want := "0 other,60 tenant,120 ,180 tenant,240 tenant"; strings.Join(f.wakes, ",") != want {
		t.Errorf("wake-ups = %v, want %s", f.wakes, want)
	}
}

// TestPlannedWorkWakesEarlierUnderTheLimit checks that machines for planned work are woken early enough that the
// limit permits all wake-ups in time.
func TestPlannedWorkWakesEarlierUnderTheLimit(t *testing.T) {
	f := newFleet(5, 2)
	for i := range 5 {
		f.Needs = append(f.Needs, sleep.Need{Job: fmt.Sprint(i), Owner: "a", At: t0.Add(6 * time.Minute), Request: cores(8)})
	}
	f.run(6 * time.Minute)
	// A boot takes two minutes.
	if want := "120 a,180 a,180 a,240 a,240 a"; strings.Join(f.wakes, ",") != want {
		t.Errorf("wake-ups = %v, want %s", f.wakes, want)
	}
}

// extreme generates numbers that a corrupt or forged object may contain.
func extreme(t *rapid.T, name string) int {
	return rapid.OneOf(rapid.Int(), rapid.SampledFrom([]int{math.MinInt, -1, 0, 1, 63, 64, math.MaxInt})).Draw(t, name)
}

func extremeFloat(t *rapid.T, name string) float64 {
	return rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{
		math.NaN(), math.Inf(1), math.Inf(-1), -1, 0, 5e-324, math.MaxFloat64,
	})).Draw(t, name)
}

func extremeTime(t *rapid.T, name string) time.Time {
	return rapid.SampledFrom([]time.Time{
		{},
		t0, t0.Add(-time.Second), t0.Add(time.Hour), time.Unix(math.MaxInt64, 0), time.Unix(math.MinInt64, 0),
		time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
	}).Draw(t, name)
}

func extremeRoom(t *rapid.T, name string) sched.Resources {
	return sched.Resources{
		MilliCPU: int64(extreme(t, name)), Memory: int64(extreme(t, name)), GPU: int64(extreme(t, name)),
	}
}

// TestDecideIsTotal checks that Decide returns a plan for every snapshot, including invalid ones.
func TestDecideIsTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &sleep.Snapshot{Now: extremeTime(t, "now"), Largest: extremeRoom(t, "largest"), Policy: sleep.Policy{
			Headroom: extremeFloat(t, "headroom"), MinAwake: extreme(t, "awake"), MaxCycles: extreme(t, "cycles"),
			After: time.Duration(extreme(t, "after")), Lead: time.Duration(extreme(t, "lead")),
			WakesPerMinute: extreme(t, "wakes"),
		}}
		for i := range rapid.IntRange(0, 5).Draw(t, "machines") {
			m := sleep.Machine{
				Name: fmt.Sprint("m", i), Capacity: extremeRoom(t, "capacity"), Free: extremeRoom(t, "free"),
				Jobs: extreme(t, "jobs"), Closed: rapid.Bool().Draw(t, "closed"), Speed: extremeFloat(t, "speed"),
				PUE: extremeFloat(t, "pue"), Since: extremeTime(t, "since"), Sleeps: extreme(t, "sleeps"),
				Failed: extreme(t, "failed"), Woken: extremeTime(t, "woken"), ByHand: rapid.Bool().Draw(t, "byHand"),
				State: rapid.SampledFrom([]sleep.State{
					sleep.Awake, sleep.Stopping, sleep.Asleep, sleep.Asleep, sleep.Booting, "", "unknown",
				}).Draw(t, "state"),
			}
			if rapid.IntRange(0, 3).Draw(t, "known") > 0 {
				w := func(name string) energy.Watts { return energy.Watts(extremeFloat(t, name)) }
				m.Profile = &energy.Profile{
					Idle: w("idle"), Max: w("max"), Sleep: w("sleep"), WakeUp: energy.Joules(extremeFloat(t, "wake")),
					BootSeconds: extremeFloat(t, "boot"), Exponent: extremeFloat(t, "exponent"),
				}
			}
			s.Machines = append(s.Machines, m)
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "needs") {
			s.Needs = append(s.Needs, sleep.Need{
				Job: fmt.Sprint(i), At: extremeTime(t, "at"), Request: extremeRoom(t, "request"),
				Duration: time.Duration(extreme(t, "duration")),
				Machines: rapid.SampledFrom([][]string{nil, {"m1"}, {"m1", "m0"}, {"none"}}).Draw(t, "only"),
			})
		}
		if plan := sleep.Decide(s); len(plan.Verdicts) != len(s.Machines) {
			t.Fatalf("got %d verdicts for %d machines", len(plan.Verdicts), len(s.Machines))
		}
	})
}

// FuzzDecide calls [sleep.Decide] with every input that can be decoded as a snapshot.
func FuzzDecide(f *testing.F) {
	f.Add([]byte(`{"now":"2026-06-01T06:00:00Z","machines":[{"name":"a","capacity":{"milliCPU":8000},"state":"asleep",
		"failed":-1}],"needs":[{"job":"x","request":{"milliCPU":1}}]}`))
	f.Add([]byte(`{"policy":{"headroom":1e308,"wakesPerMinute":1},"machines":[{"state":"awake","profile":{"idleWatts":1}}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		defer memtest.Limit(t, 4000*len(text))()
		var s sleep.Snapshot
		if json.Unmarshal(text, &s) == nil {
			sleep.Decide(&s)
		}
	})
}
