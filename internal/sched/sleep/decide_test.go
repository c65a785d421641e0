package sleep_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
)

var t0 = time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)

// A boot of the small machine takes two minutes and 10 kJ. Sleeping saves 40 W, so 250 s of sleep recover the
// energy of a boot.
var small = &energy.Profile{Name: "small", Idle: 50, Max: 200, Sleep: 10, WakeUp: 10_000, BootSeconds: 120}

// The big machine has a lower power per core.
var big = &energy.Profile{Name: "big", Idle: 60, Max: 240, Sleep: 10, WakeUp: 12_500, BootSeconds: 120}

func cores(n int64) sched.Resources { return sched.Resources{MilliCPU: n * 1000, Memory: n << 30} }

// machine returns a machine with 8 cores, or 32 cores for the big profile, in an unchanged state for an hour.
func machine(name string, p *energy.Profile, state sleep.State) sleep.Machine {
	capacity := cores(8)
	if p == big {
		capacity = cores(32)
	}
	return sleep.Machine{
		Name: name, Zone: "home", Capacity: capacity, Free: capacity, Profile: p, State: state, Since: t0.Add(-time.Hour),
	}
}

// verdicts returns the decision on each machine, as in "a sleep not-needed".
func verdicts(s *sleep.Snapshot) (all []string) {
	plan := sleep.Decide(s)
	for i, v := range plan.Verdicts {
		all = append(all, fmt.Sprintf("%s %s %s", s.Machines[i].Name, string(v.Do), v.Reason))
	}
	return all
}

func TestDecide(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*sleep.Snapshot)
		want   []string
	}{
		"nothing to do": {func(*sleep.Snapshot) {}, []string{
			"a  works", "b sleep not-needed", "c sleep not-needed", "d  not-needed",
		}},
		"sleep does not recover the boot yet": {func(s *sleep.Snapshot) {
			s.Machines[1].Since, s.Machines[2].Since = t0.Add(-249*time.Second), t0.Add(-250*time.Second)
		}, []string{"a  works", "b  just-emptied", "c sleep not-needed", "d  not-needed"}},
		"minimum empty time is longer": {func(s *sleep.Snapshot) { s.Policy.After = 2 * time.Hour }, []string{
			"a  works", "b  just-emptied", "c  just-emptied", "d  not-needed",
		}},
		"one must not": {func(s *sleep.Snapshot) { s.Machines[1].Keep = "one machine must stay awake" }, []string{
			"a  works", "b  must-stay", "c sleep not-needed", "d  not-needed",
		}},
		"minimum number of awake machines": {func(s *sleep.Snapshot) { s.Policy.MinAwake = 2 }, []string{
			"a  works", "b  least-awake", "c sleep not-needed", "d  not-needed", // c has the higher power per core
		}},
		"maximum of cycles": {func(s *sleep.Snapshot) { s.Policy.MaxCycles, s.Machines[2].Sleeps = 3, 3 }, []string{
			"a  works", "b sleep not-needed", "c  cycles-used-up", "d  not-needed",
		}},
		"half of the cycles": {func(s *sleep.Snapshot) {
			s.Policy.MaxCycles, s.Machines[2].Sleeps = 6, 4
			s.Machines[2].Since = s.Now.Add(-1249 * time.Second) // five times as long
		}, []string{"a  works", "b sleep not-needed", "c  just-emptied", "d  not-needed"}},
		"half of the cycles, empty for longer": {func(s *sleep.Snapshot) {
			s.Policy.MaxCycles, s.Machines[2].Sleeps = 6, 4
			s.Machines[2].Since = s.Now.Add(-1250 * time.Second)
		}, []string{"a  works", "b sleep not-needed", "c sleep not-needed", "d  not-needed"}},
		"headroom for half of the used resources": {func(s *sleep.Snapshot) {
			s.Policy.Headroom, s.Machines[0].Free = 0.5, sched.Resources{}
		}, []string{"a  works", "b  headroom", "c sleep not-needed", "d  not-needed"}},
		"headroom for the largest job": {func(s *sleep.Snapshot) {
			s.Policy.Headroom, s.Largest = 0.01, cores(16)
		}, []string{"a  works", "b  headroom", "c sleep not-needed", "d  not-needed"}},
		"insufficient headroom": {func(s *sleep.Snapshot) {
			s.Policy.Headroom, s.Machines[0].Free = 6, sched.Resources{}
		}, []string{"a  works", "b  headroom", "c  headroom", "d wake headroom"}},
		"one job is waiting": {func(s *sleep.Snapshot) {
			s.Machines = s.Machines[:1]
			s.Machines = append(s.Machines, machine("d", small, sleep.Asleep), machine("e", big, sleep.Asleep))
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Duration: time.Hour}}
		}, []string{"a  works", "d  not-needed", "e wake waiting-work"}},
		"several jobs are waiting": {func(s *sleep.Snapshot) {
			s.Machines = append(s.Machines[:1], machine("d", small, sleep.Asleep), machine("e", big, sleep.Asleep),
				machine("f", big, sleep.Asleep))
			for i := range 6 {
				s.Needs = append(s.Needs, sleep.Need{Job: strconv.Itoa(i), Request: cores(6), Duration: time.Hour})
			}
		}, []string{"a  works", "d  not-needed", "e wake waiting-work", "f wake waiting-work"}},
		"job waits for a booting machine": {func(s *sleep.Snapshot) {
			s.Machines[3].State, s.Machines[3].Since = sleep.Booting, t0
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4)}}
		}, []string{"a  works", "b sleep not-needed", "c sleep not-needed", "d  waiting-work"}},
		"job waits and only one machine has the label": {func(s *sleep.Snapshot) {
			s.Machines[3].Labels = map[string]string{"disk": "ssd"}
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Selector: map[string]string{"disk": "ssd"}}}
		}, []string{"a  works", "b sleep not-needed", "c sleep not-needed", "d wake waiting-work"}},
		"planned work keeps a machine awake": {func(s *sleep.Snapshot) {
			s.Needs = []sleep.Need{{Job: "x", At: t0.Add(5 * time.Minute), Request: cores(30), Duration: time.Hour}}
		}, []string{"a  works", "b  planned-work", "c sleep not-needed", "d  not-needed"}},
		"planned work is late enough to sleep before it": {func(s *sleep.Snapshot) {
			s.Needs = []sleep.Need{{Job: "x", At: t0.Add(7 * time.Minute), Request: cores(30), Duration: time.Hour}}
		}, []string{"a  works", "b sleep not-needed", "c sleep not-needed", "d  not-needed"}},
		"planned work wakes a machine in time": {func(s *sleep.Snapshot) {
			s.Policy.Lead = 30 * time.Second
			s.Machines = append(s.Machines[:1], machine("d", small, sleep.Asleep), machine("e", small, sleep.Asleep))
			s.Needs = []sleep.Need{
				{Job: "soon", At: t0.Add(150 * time.Second), Request: cores(8), Duration: time.Hour},
				{Job: "later", At: t0.Add(151 * time.Second), Request: cores(8), Duration: time.Hour},
			}
		}, []string{"a  works", "d wake planned-work", "e  planned-work"}},
		"machine with a failed boot comes last": {func(s *sleep.Snapshot) {
			s.Machines = append(s.Machines[:1], machine("d", small, sleep.Asleep), machine("e", big, sleep.Asleep))
			s.Machines[1].Failed, s.Machines[1].Since = 1, t0.Add(-time.Minute)
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Duration: time.Hour}}
		}, []string{"a  works", "d  not-needed", "e wake waiting-work"}},
		"machine with a failed boot is retried later without alternatives": {func(s *sleep.Snapshot) {
			s.Machines = append(s.Machines[:1], machine("d", small, sleep.Asleep))
			s.Machines[1].Failed, s.Machines[1].Since = 1, t0.Add(-239*time.Second)
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Duration: time.Hour}}
		}, []string{"a  works", "d  boot-failed"}},
		"second machine is woken if the last boot of the first one failed": {func(s *sleep.Snapshot) {
			s.Machines = append(s.Machines[:1], machine("d", big, sleep.Asleep), machine("e", small, sleep.Asleep),
				machine("f", small, sleep.Asleep))
			s.Machines[1].Failed = 1
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Duration: 10 * time.Hour}}
		}, []string{"a  works", "d wake waiting-work", "e wake waiting-work", "f  not-needed"}},
		"machine is already booting": {func(s *sleep.Snapshot) {
			s.Machines = append(s.Machines[:1], machine("d", big, sleep.Booting), machine("e", small, sleep.Booting),
				machine("f", small, sleep.Asleep))
			s.Machines[1].Failed = 1
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Duration: 10 * time.Hour}}
		}, []string{"a  works", "d  changing", "e  waiting-work", "f  not-needed"}},
		"several machines are woken right after a failed boot": {func(s *sleep.Snapshot) {
			s.Machines = s.Machines[:1]
			for _, name := range []string{"d", "e", "f", "g", "h", "i"} {
				s.Machines = append(s.Machines, machine(name, small, sleep.Asleep))
			}
			s.Machines[1].Failed, s.Machines[1].Since = 1, t0.Add(-time.Second)
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Duration: time.Hour}}
		}, []string{
			"a  works", "d  not-needed", "e wake waiting-work", "f wake waiting-work", "g wake waiting-work",
			"h wake waiting-work", "i  not-needed",
		}},
		"several machines are woken if a boot is late": {func(s *sleep.Snapshot) {
			s.Machines = append(s.Machines[:1], machine("d", small, sleep.Booting), machine("e", small, sleep.Asleep),
				machine("f", small, sleep.Asleep))
			s.Machines[1].Failed, s.Machines[1].Since = 1, t0.Add(-130*time.Second)
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Duration: time.Hour}}
		}, []string{"a  works", "d  changing", "e wake waiting-work", "f wake waiting-work"}},
		"only some machines are suitable and a sleeping one is preferred": {func(s *sleep.Snapshot) {
			s.Machines = append(s.Machines[:1], machine("d", big, sleep.Asleep), machine("e", big, sleep.Stopping),
				machine("f", small, sleep.Asleep))
			s.Needs = []sleep.Need{{Job: "x", Request: cores(4), Machines: []string{"e", "f"}, Duration: time.Hour}}
		}, []string{"a  works", "d  not-needed", "e  changing", "f wake waiting-work"}},
		"sleep saves no power": {func(s *sleep.Snapshot) {
			s.Machines[2].Profile = &energy.Profile{Idle: 50, Max: 200, Sleep: 50, BootSeconds: 60}
		}, []string{"a  works", "b sleep not-needed", "c  saves-nothing", "d  not-needed"}},
	} {
		s := &sleep.Snapshot{Now: t0, Machines: []sleep.Machine{
			machine("a", small, sleep.Awake), machine("b", big, sleep.Awake), machine("c", small, sleep.Awake),
			machine("d", big, sleep.Asleep),
		}}
		s.Machines[0].Free, s.Machines[0].Jobs = cores(6), 1
		c.change(s)
		if diff := cmp.Diff(c.want, verdicts(s)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

func TestDecideSaysWhenToAskAgain(t *testing.T) {
	s := &sleep.Snapshot{Now: t0, Policy: sleep.Policy{Lead: 30 * time.Second}, Machines: []sleep.Machine{
		machine("a", small, sleep.Awake), machine("b", small, sleep.Asleep),
	}}
	s.Machines[0].Since = t0.Add(-100 * time.Second)
	if got := sleep.Decide(s).Next; !got.Equal(t0.Add(150 * time.Second)) {
		t.Errorf("Next = %v, want the time when a boot is recovered", got)
	}
	s.Machines[0].Jobs, s.Machines[0].Free = 1, sched.Resources{}
	s.Needs = []sleep.Need{{Job: "x", At: t0.Add(6 * time.Minute), Request: cores(1)}}
	if got := sleep.Decide(s).Next; !got.Equal(t0.Add(6*time.Minute - 150*time.Second)) {
		t.Errorf("Next = %v, want the time to wake the machine", got)
	}
	s.Needs[0].Request = cores(9)
	if plan := sleep.Decide(s); !cmp.Equal(plan.Unmet, []string{"x"}) || !plan.Next.IsZero() {
		t.Errorf("plan for a job that fits on no machine = %+v", plan)
	}
}

// drawn generates a snapshot.
func drawn(t *rapid.T) *sleep.Snapshot {
	s := &sleep.Snapshot{Now: t0, Policy: sleep.Policy{
		Headroom: rapid.Float64Range(0, 1).Draw(t, "headroom"), MinAwake: rapid.IntRange(0, 3).Draw(t, "least"),
		After: time.Duration(rapid.IntRange(0, 900).Draw(t, "after")) * time.Second, Lead: 30 * time.Second,
		MaxCycles: rapid.IntRange(0, 4).Draw(t, "cycles"), WakesPerMinute: rapid.IntRange(0, 3).Draw(t, "wakes"),
	}}
	for i := range rapid.IntRange(0, 12).Draw(t, "machines") {
		m := machine(fmt.Sprintf("m%02d", i), rapid.SampledFrom([]*energy.Profile{small, big}).Draw(t, "profile"),
			rapid.SampledFrom([]sleep.State{sleep.Awake, sleep.Awake, sleep.Stopping, sleep.Asleep, sleep.Booting}).
				Draw(t, "state"))
		m.Zone = rapid.SampledFrom([]string{"home", "away"}).Draw(t, "zone")
		m.Since = t0.Add(-time.Duration(rapid.IntRange(0, 1200).Draw(t, "since")) * time.Second)
		m.Keep = rapid.SampledFrom([]string{"", "", "local storage"}).Draw(t, "keep")
		m.Sleeps, m.Failed = rapid.IntRange(0, 4).Draw(t, "sleeps"), rapid.IntRange(0, 3).Draw(t, "failed")
		m.Woken = t0.Add(-time.Duration(rapid.IntRange(-30, 300).Draw(t, "woken")) * time.Second)
		m.WokenFor = rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "wokenFor")
		if m.State == sleep.Awake && rapid.Bool().Draw(t, "works") {
			used := cores(rapid.Int64Range(0, 8).Draw(t, "used"))
			m.Free, m.Jobs = m.Capacity.Sub(used), 1
		} else if m.State == sleep.Asleep && rapid.IntRange(0, 3).Draw(t, "bound") == 0 {
			m.Jobs, m.Owner, m.ByHand = 1, "b", rapid.Bool().Draw(t, "byHand")
		}
		s.Machines = append(s.Machines, m)
	}
	for i := range rapid.IntRange(0, 8).Draw(t, "needs") {
		need := sleep.Need{
			Job: strconv.Itoa(i), Request: cores(rapid.Int64Range(1, 40).Draw(t, "cores")), Duration: time.Hour,
			Owner: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner"),
		}
		if rapid.Bool().Draw(t, "planned") {
			need.At = t0.Add(time.Duration(rapid.IntRange(1, 1200).Draw(t, "at")) * time.Second)
		}
		s.Needs = append(s.Needs, need)
	}
	s.Largest = cores(rapid.Int64Range(0, 20).Draw(t, "largest"))
	return s
}

// TestDecideProperties checks the following for arbitrary snapshots. Machines with work and machines that must not
// sleep are never put to sleep, and neither are machines beyond their cycles or below the minimum number of awake
// machines. Work that only fits on a sleeping machine wakes one, within the limit of wake-ups. The encoded snapshot
// results in the same decision.
func TestDecideProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawn(t)
		plan := sleep.Decide(s)
		awake := map[string]int{}
		for i := range s.Machines {
			m, v := &s.Machines[i], plan.Verdicts[i]
			checkVerdict(t, s, m, v)
			if m.State == sleep.Awake && v.Do != sleep.Sleep {
				awake[m.Zone]++
			}
		}
		for i := range s.Machines {
			if m := &s.Machines[i]; plan.Verdicts[i].Do == sleep.Sleep && awake[m.Zone] < s.Policy.MinAwake {
				t.Fatalf("only %d machines are awake in zone %s", awake[m.Zone], m.Zone)
			}
		}
		checkServed(t, s, &plan)
		checkLimit(t, s, &plan)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		var again sleep.Snapshot
		if err := json.Unmarshal(text, &again); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(plan, sleep.Decide(&again)); diff != "" {
			t.Fatalf("decoded snapshot results in a different decision:\n%s", diff)
		}
	})
}

func checkVerdict(t *rapid.T, s *sleep.Snapshot, m *sleep.Machine, v sleep.Verdict) {
	switch v.Do {
	case sleep.Sleep:
		if m.State != sleep.Awake || m.Jobs > 0 || m.Keep != "" || v.Reason != sleep.Spare ||
			s.Policy.MaxCycles > 0 && m.Sleeps >= s.Policy.MaxCycles || s.Now.Sub(m.Since) < s.Policy.After {
			t.Fatalf("machine %+v must not be put to sleep: %+v", m, v)
		}
	case sleep.Wake:
		if m.State != sleep.Asleep {
			t.Fatalf("machine %+v must not be woken: %+v", m, v)
		}
	}
	if v.Reason == "" {
		t.Fatalf("verdict for %+v has no reason", m)
	}
}

// checkServed checks that a machine is woken if a job waits, unless a suitable machine is booting, or no sleeping
// machine may be tried.
func checkServed(t *rapid.T, s *sleep.Snapshot, plan *sleep.Plan) {
	woken := slices.ContainsFunc(plan.Verdicts, func(v sleep.Verdict) bool {
		return v.Do == sleep.Wake || v.Reason == sleep.WakeLimit
	})
	for _, need := range s.Needs {
		if !need.At.IsZero() {
			continue
		}
		comes, sleeps := false, false
		for i := range s.Machines {
			m := &s.Machines[i]
			if !need.Request.Within(m.Capacity) {
				continue
			}
			comes = comes || m.State == sleep.Booting || m.State == sleep.Stopping ||
				m.State == sleep.Awake && m.Jobs == 0
			sleeps = sleeps || m.State == sleep.Asleep && m.Failed == 0
		}
		if sleeps && !comes && !woken {
			t.Fatalf("need %+v is waiting and no machine is woken: %+v", need, plan)
		}
	}
}
