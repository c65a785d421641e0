package strategy_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// guardedDay returns a snapshot with jobs of four cores that run for half an hour and may wait for four hours, on
// awake nodes with eight cores. The intensity is 500 g/kWh, and lower between two and four hours from now.
func guardedDay(t *testing.T, lower float64, nodes, jobs int) *sched.Snapshot {
	t.Helper()
	now := time.Date(2026, 6, 1, 8, 0, 0, 0, time.UTC)
	values := make([]float64, 36)
	for i := range values {
		if values[i] = 500; i == 2 || i == 3 {
			values[i] = lower
		}
	}
	carbon, err := grid.NewSeries(now, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	site := &sched.Site{Name: "here", Carbon: grid.Signal{Series: carbon}}
	s := &sched.Snapshot{Now: now, Sites: []*sched.Site{site}}
	room := sched.Resources{MilliCPU: 8000}
	for i := range nodes {
		s.Nodes = append(s.Nodes, &sched.Node{
			Name: fmt.Sprint("n", i), Site: site, Capacity: room, Free: room, Awake: true,
			Profile: &energy.Profile{Idle: 50, Max: 150, Sleep: 50},
		})
	}
	for i := range jobs {
		s.Queue = append(s.Queue, sched.Job{
			ID: fmt.Sprint("j", i), Submitted: now, Duration: 30 * time.Minute, AllowedDelay: 4 * time.Hour,
			Request: sched.Resources{MilliCPU: 4000},
		})
	}
	return s
}

func jointly(t *testing.T, name string, s *sched.Snapshot) sched.Plan {
	t.Helper()
	plan, _ := mustStrategy(t, name).PlanWithin(s, func() bool { return false })
	return plan
}

// TestGuardedPlans checks that the start rule "guarded" holds jobs unless the signal is flat or capacity has been
// short, while "plan" holds them in all cases.
func TestGuardedPlans(t *testing.T) {
	for name, c := range map[string]struct {
		lower    float64
		nodes    int
		shortage time.Duration
		want     string
	}{
		"large swing":                         {100, 2, 0, "PlannedLater"},
		"small swing":                         {430, 2, 0, "FlatSignal"},
		"shortages and little capacity":       {100, 1, 2 * time.Hour, "ScarceCapacity"},
		"shortages, sufficient capacity":      {100, 2, 2 * time.Hour, "PlannedLater"},
		"short shortages and little capacity": {100, 1, time.Hour / 2, "PlannedLater"},
	} {
		s := guardedDay(t, c.lower, c.nodes, 1)
		s.Queue[0].Shortage = c.shortage
		if got := jointly(t, "carbon+guarded", s)[0].Reason.Kind.String(); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if d := jointly(t, "carbon+plan", s)[0]; !d.Held(s.Now) {
			t.Errorf("%s: the start rule plan does not hold the job: %v", name, d.Reason)
		}
	}
}

// TestGuardedStartsAhead checks that planned starts precede the latest start by the margin.
func TestGuardedStartsAhead(t *testing.T) {
	s := guardedDay(t, 100, 1, 10)
	for i := range s.Queue {
		s.Queue[i].AllowedDelay = 2*time.Hour + 5*time.Minute
	}
	s.Nodes[0].Profile = &energy.Profile{Idle: 50, Max: 150, Sleep: 5, BootSeconds: 60}
	s.Nodes[0].Awake = false
	last := s.Now.Add(2*time.Hour - 6*time.Minute)
	for _, d := range jointly(t, "carbon+guarded", s) {
		if d.Window.Start.After(last) {
			t.Errorf("%s starts at %v, want at most %v", d.Job, d.Window.Start, last)
		}
	}
}

// TestGuardedReserve checks that held jobs leave capacity for one further job on a node that is awake, unlike with
// the start rule "plan".
func TestGuardedReserve(t *testing.T) {
	for _, c := range []struct {
		name  string
		cores int64 // of the awake node; the other node sleeps
		held  bool
	}{{"carbon+plan", 8, false}, {"carbon+guarded", 8, true}, {"carbon+guarded", 12, false}} {
		s := guardedDay(t, 500, 2, 1)
		for _, n := range s.Nodes {
			n.Profile = &energy.Profile{Idle: 100, Max: 150, Sleep: 5, WakeUp: 50_000}
		}
		s.Nodes[1].Awake = false
		running := s.Queue[0].Request
		n := s.Nodes[0]
		n.Capacity.MilliCPU, n.Free.MilliCPU = 1000*c.cores, 1000*c.cores
		*n = n.Place(running)
		n.Ends = []sched.End{{At: s.Now.Add(time.Hour), Request: running}}
		if d := jointly(t, c.name, s)[0]; d.Held(s.Now) != c.held {
			t.Errorf("%s, %d cores: start after %v, %v", c.name, c.cores, d.Window.Start.Sub(s.Now), d.Reason)
		}
	}
}

// TestCapacityOnAwakeNodes checks that the start rule "capacity" waits for at most 15 minutes, without signals, for
// capacity on a node that is awake instead of waking another one.
func TestCapacityOnAwakeNodes(t *testing.T) {
	for name, c := range map[string]struct {
		busy time.Duration // remaining run time of the job on the node that is awake
		held bool
	}{"soon": {10 * time.Minute, true}, "late": {20 * time.Minute, false}} {
		s := guardedDay(t, 100, 2, 1)
		s.Sites = nil
		for _, n := range s.Nodes {
			n.Profile = &energy.Profile{Idle: 100, Max: 150, Sleep: 5, WakeUp: 50_000}
		}
		s.Nodes[1].Awake = false
		*s.Nodes[0] = s.Nodes[0].Place(s.Nodes[0].Capacity)
		s.Nodes[0].Ends = []sched.End{{At: s.Now.Add(c.busy), Request: s.Nodes[0].Capacity}}
		s.Policy.MinSavingGrams = 1000 // only applies to signals
		d := jointly(t, "energy+capacity", s)[0]
		if d.Held(s.Now) != c.held || c.held && (d.Window.Start.After(s.Now.Add(15*time.Minute)) || d.Reason.Carbon != 0) {
			t.Errorf("%s: %v, %v", name, d.Window.Start.Sub(s.Now), d.Reason)
		}
	}
}

// TestSavingOfAMovedStart checks that the saving of a planned start is computed again if a job with a long delay makes
// the slots of the plan longer, so that the start moves out of the clean minutes.
func TestSavingOfAMovedStart(t *testing.T) {
	s := guardedDay(t, 500, 2, 1)
	values := make([]float64, 120*60/5)
	for i := range values {
		if values[i] = 500; i == 5 { // from 25 to 30 minutes from now
			values[i] = 100
		}
	}
	carbon, err := grid.NewSeries(s.Now, 5*time.Minute, values)
	if err != nil {
		t.Fatal(err)
	}
	s.Sites[0].Carbon = grid.Signal{Series: carbon}
	s.Queue[0].Duration, s.Queue[0].AllowedDelay = 5*time.Minute, time.Hour
	first := jointly(t, "carbon+plan", s)[0]
	if wait := first.Window.Start.Sub(s.Now); wait != 25*time.Minute || first.Reason.Saving < 0.7 {
		t.Fatalf("planned in %v, saving %.2f", wait, first.Reason.Saving)
	}
	s.Queue[0].Place = first.Place()
	s.Queue[0].AllowedDelay = 24 * time.Hour // the slots have the length of the signal's steps
	if same := jointly(t, "carbon+plan", s)[0]; same.Window.Start.Sub(s.Now) != 25*time.Minute {
		t.Errorf("with a longer delay, planned in %v", same.Window.Start.Sub(s.Now))
	}
	long := s.Queue[0]
	long.ID, long.AllowedDelay, long.Place = "long", 96*time.Hour, sched.Place{}
	s.Queue = append(s.Queue, long)
	again := jointly(t, "carbon+plan", s)[0]
	if again.Held(s.Now) && !again.Window.Start.Equal(first.Window.Start) && again.Reason.Saving >= first.Reason.Saving {
		t.Errorf("the start moved to %v with the former saving of %.2f", again.Window.Start, again.Reason.Saving)
	}
}
