package lab

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// TestLateReplayIsNotValid verifies that results are marked if pods started later than simulated.
func TestLateReplayIsNotValid(t *testing.T) {
	for _, test := range []struct {
		late  time.Duration
		valid bool
	}{{10 * time.Minute, true}, {11 * time.Minute, false}} {
		at := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
		measured := &sim.Result{Strategy: "stock", Accounted: at}
		simulated := &sim.Result{Strategy: "stock (simulated)", Accounted: at}
		for range 2 {
			const queued = time.Hour // without capacity, in both
			simulated.Outcomes = append(simulated.Outcomes, sim.Outcome{Released: at, Start: at.Add(queued)})
			measured.Outcomes = append(measured.Outcomes, sim.Outcome{Released: at, Start: at.Add(queued + test.late)})
		}
		all, invalid, err := compare([]*sim.Result{measured}, []*sim.Result{simulated}, 10*time.Minute)
		if err != nil || len(all) != 2 || all[1] != simulated {
			t.Fatalf("results %v, error %v", all, err)
		}
		if marked := strings.HasSuffix(all[0].Strategy, " (not valid)"); marked == test.valid ||
			(invalid == "") != test.valid {
			t.Errorf("%v late: strategy %q, reason %q", test.late, all[0].Strategy, invalid)
		}
	}
}

// TestLateReplayIsAborted verifies that a replay ends as soon as its results cannot be valid.
func TestLateReplayIsAborted(t *testing.T) {
	at := time.Now().Add(-time.Hour)
	for _, test := range []struct {
		factor float64
		queued time.Duration // until the start of pods, in the simulation
		want   error
	}{{600, 0, errBusy}, {600, 4 * time.Hour, nil}, {1, 0, nil}} {
		simulated := &sim.Result{Outcomes: []sim.Outcome{{Released: at, Start: at.Add(test.queued)}}}
		r := &Replay{
			Cluster: &Cluster{done: make(chan struct{})}, Trials: make([]Trial, 1), Simulated: []*sim.Result{simulated},
			Scenario: &sim.Scenario{Start: at, Jobs: []sched.Job{{Submitted: at.Add(4 * time.Hour)}}},
			clock:    Clock{Trace: at, Wall: time.Now(), Factor: test.factor},
		}
		w := &watch{replay: r, trials: map[string]map[int]*observed{"": {0: {}}}}
		time.AfterFunc(1500*time.Millisecond, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.trials[""][0].finished = time.Now()
		})
		if err := r.wait(t.Context(), w); !errors.Is(err, test.want) {
			t.Errorf("%+v: error %v", test, err)
		}
	}
}

// TestSlowdown verifies that the clock is slowed down so that the latency of Jobs is 1/150 of the trace, at most by a
// factor of three.
func TestSlowdown(t *testing.T) {
	for latency, want := range map[time.Duration]float64{
		0: 1, 100 * time.Millisecond: 1, 200 * time.Millisecond: 1, 300 * time.Millisecond: 1.5, 600 * time.Millisecond: 3,
		time.Minute: 3,
	} {
		if got := slowdown(latency, 15*time.Hour, 1800); math.Abs(got-want) > 1e-9 {
			t.Errorf("latency %v: %v, want %v", latency, got, want)
		}
	}
}
