package sim_test

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/sleep"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// booting is a machine with 100 to 300 W and 10 W asleep. A boot takes two minutes and 36 kJ, which is saved by 400
// s of sleep.
var booting = &energy.Profile{Idle: 100, Max: 300, Sleep: 10, WakeUp: 36000, BootSeconds: 120}

// Two machines of 10 cores, computed by hand. Job a uses all of the first from 0:00 to 1:00. Job b arrives at 0:30
// and fits only on the second, which sleeps from 0:06:40 on:
//
//	first   0:00–1:00  300 W; 1:00–1:06:40 100 W; then 10 W
//	second  0:00–0:06:40 100 W; –0:30 10 W; boots until 0:32: 10 W and 36 kJ; –1:32 300 W, its end
func TestSleepByHand(t *testing.T) {
	home := site(t, "home", 1, 500, 500, 500, 500)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home},
		Nodes: []sched.Node{node("m1", home, 10, booting), node("m2", home, 10, booting)},
		Jobs:  []sched.Job{job("a", 0, time.Hour, 10, 0), job("b", 30*time.Minute, time.Hour, 10, 0)},
	}
	r := run(t, s, "energy")
	if b := &r.Outcomes[1]; b.Placed.Node != "m2" || !b.Start.Equal(start.Add(32*time.Minute)) {
		t.Errorf("b ran on %s from %v, want m2 from 32m", b.Placed.Node, b.Start)
	}
	const minute = 60.0
	want := 300*60*minute + 100*400 + 10*(32*minute-400) + // m1
		100*400 + 10*(32*minute-400) + 36000 + 300*60*minute
	if got := float64(r.Energy); math.Abs(got-want) > 1e-6 {
		t.Errorf("energy = %v J, want %v", got, want)
	}
	got := r.Sleep
	if got.Boots != 1 || got.FailedBoots != 0 || got.BootEnergy != 36000 || got.BootTime != 2*time.Minute ||
		got.MaxCycles != 1 || got.Asleep != 2*(32*time.Minute-400*time.Second)-2*time.Minute {
		t.Errorf("%+v", got)
	}
	// Later both machines sleep; the machine of b does so after it has saved the energy of its boot.
	if err := r.AccountUntil(start.Add(2 * time.Hour)); err != nil {
		t.Fatal(err)
	}
	want += 10*28*minute + 100*400 + 10*(28*minute-400)
	if got := float64(r.Energy); math.Abs(got-want) > 1e-6 {
		t.Errorf("energy after two hours = %v J, want %v", got, want)
	}
}

// The machine of a planned job is awake in time, and does not boot much earlier.
func TestPlannedWorkFindsItsMachineAwake(t *testing.T) {
	home := site(t, "home", 1, 500, 500, 100, 500)
	s := &sim.Scenario{
		Start: start, Sites: []*sched.Site{home}, Nodes: []sched.Node{node("m1", home, 10, booting)},
		Jobs:  []sched.Job{job("a", 0, time.Hour, 10, 6*time.Hour)},
		Sleep: sim.SleepRules{Policy: sleep.Policy{Lead: 30 * time.Second}},
	}
	r := run(t, s, "carbon+window")
	if a := &r.Outcomes[0]; !a.Start.Equal(start.Add(2 * time.Hour)) {
		t.Errorf("job started at %v, want 2h after the start", a.Start)
	}
	if want := 2*time.Hour - 400*time.Second - 150*time.Second; r.Sleep.Asleep != want || r.Sleep.Boots != 1 {
		t.Errorf("Sleep = %+v, want one boot and %v asleep", r.Sleep, want)
	}
}

// If boots fail, other machines are tried, and eventually the same one again.
func TestBootsThatFail(t *testing.T) {
	home := site(t, "home", 1, 500, 500, 500, 500, 500, 500)
	s := &sim.Scenario{Start: start, Sites: []*sched.Site{home}, Sleep: sim.SleepRules{BootFailures: 0.9}}
	for i := range 4 {
		s.Nodes = append(s.Nodes, node(fmt.Sprint("m", i), home, 10, booting))
	}
	for i := range 4 {
		s.Jobs = append(s.Jobs, job(fmt.Sprint("j", i), time.Hour, time.Minute, 10, 0))
	}
	r := run(t, s, "energy")
	for i := range r.Outcomes {
		if r.Outcomes[i].Placed.Node == "" {
			t.Errorf("job %d did not run", i)
		}
	}
	if r.Sleep.FailedBoots < 4 || r.Sleep.Boots <= r.Sleep.FailedBoots {
		t.Errorf("%+v", r.Sleep)
	}
}

// For any fleet, jobs and rules, each job runs where it fits, machines do not exceed their cycle limits, and sleep
// and boots account for all time in which machines were not awake.
func TestSleepKeepsItsInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawScenario(t, func(i int) float64 { return float64(100 + 50*(i%7)) })
		s.Sleep = sim.SleepRules{
			Policy: sleep.Policy{
				Headroom: rapid.SampledFrom([]float64{0, 0.2, 1}).Draw(t, "headroom"),
				MinAwake: rapid.IntRange(0, 2).Draw(t, "least"), MaxCycles: rapid.IntRange(0, 3).Draw(t, "cycles"),
				Lead: 30 * time.Second,
			},
			BootFailures: rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "fail"),
		}
		for i := range s.Nodes {
			s.Nodes[i].Profile = booting
		}
		name := rapid.SampledFrom([]string{"energy", "carbon+window", "fcfs+now/fifo"}).Draw(t, "strategy")
		var results [2]*sim.Result
		for i, s := range []*sim.Scenario{s, s.StayingAwake()} {
			strategy, err := strategy.New(name)
			if err != nil {
				t.Fatal(err)
			}
			if results[i], err = sim.Run(context.Background(), s, name, strategy); err != nil {
				t.Fatal(err)
			}
		}
		r, awake := results[0], results[1]
		for i := range r.Outcomes {
			if (r.Outcomes[i].Placed.Node == "") != (awake.Outcomes[i].Placed.Node == "") {
				t.Fatalf("job %d ran in only one of the two runs", i)
			}
		}
		slept := &r.Sleep
		if s.Sleep.MaxCycles > 0 && slept.MaxCycles > s.Sleep.MaxCycles {
			t.Fatalf("MaxCycles = %d, above the limit", slept.MaxCycles)
		}
		if slept.BootTime != time.Duration(slept.Boots)*2*time.Minute {
			t.Fatalf("%+v", slept)
		}
		if all := time.Duration(len(s.Nodes)) * r.Accounted.Sub(s.Start); slept.Asleep < 0 ||
			slept.Asleep > all {
			t.Fatalf("Asleep = %v, want 0 to %v", slept.Asleep, all)
		}
	})
}
