package policy_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// waiting returns a snapshot of jobs that may wait, and nodes for them, generated from a seed. The signals start
// days ago and have realistic precision, and each node has its own profile.
func waiting(t *testing.T, seed uint64) (*sched.Snapshot, []sched.Node) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 0))
	now := time.Date(2026, 6, 1, 6, 7, 8, 9, time.FixedZone("CEST", 7200))
	s := &sched.Snapshot{Now: now, Policy: sched.Policy{MinSaving: 0.01, MinSavingPerHour: 0.005, Seed: seed}}
	for i := range 2 {
		values := make([]float64, 24*14*12)
		for k := range values {
			values[k] = 600 * r.Float64()
		}
		carbon, err := grid.NewSeries(now.Add(-200*time.Hour), 5*time.Minute, values)
		if err != nil {
			t.Fatal(err)
		}
		s.Sites = append(s.Sites, &sched.Site{Name: fmt.Sprint("site", i), Carbon: grid.Signal{Series: carbon}})
	}
	var nodes []sched.Node
	for i := range 8 {
		room := sched.Resources{MilliCPU: 8000, Memory: 1 << 35}
		n := sched.Node{
			Name: fmt.Sprint("n", (i+3)%8), Site: s.Sites[i%2], Capacity: room, Free: room, Awake: r.IntN(2) == 0,
			Profile: &energy.Profile{
				Name: fmt.Sprint("p", i%2), Idle: 50, Max: energy.Watts(120 + 50*(i%2)), Sleep: 5, WakeUp: 9000,
				Quality: energy.Estimated, Source: fmt.Sprint("meter ", i),
			},
		}
		if r.IntN(2) == 0 {
			asks := sched.Resources{MilliCPU: 1500, Memory: 1 << 30}
			n = n.Place(asks)
			n.Ends = append(n.Ends, sched.End{At: now.Add(time.Duration(r.IntN(9000)) * time.Second), Request: asks})
		}
		nodes = append(nodes, n)
	}
	for i := range 40 {
		s.Queue = append(s.Queue, sched.Job{
			ID: fmt.Sprint("team/j", i), Submitted: now.Add(-time.Duration(r.IntN(3600)) * time.Second),
			Duration:     time.Duration(600+r.IntN(6600)) * time.Second,
			AllowedDelay: time.Duration(r.IntN(20)) * time.Hour,
			Request:      sched.Resources{MilliCPU: int64(500 * (1 + r.IntN(8))), Memory: 1 << 30},
		})
	}
	return s, nodes
}

// recorded makes a plan, which is stopped at the given call of stop unless stopAt is 0, and returns its record.
func recorded(t *testing.T, seed uint64, stopAt int) (written []byte) {
	t.Helper()
	s, nodes := waiting(t, seed)
	asked := 0
	plan, looks := policy.PlanTogether("plan", s, nodes, func() bool { asked++; return asked == stopAt })
	if looks != stopAt {
		t.Fatalf("the plan was stopped at check %d, want %d", looks, stopAt)
	}
	var b bytes.Buffer
	policy.RecordPlans(&b, slog.New(slog.DiscardHandler))("plan", s, plan, looks)
	return b.Bytes()
}

// TestRecordedPlansAreTheSameAgain verifies that replaying a record yields the same plan, even if the plan was
// stopped.
//
//test:norace
func TestRecordedPlansAreTheSameAgain(t *testing.T) {
	for seed := range uint64(20) {
		var all []byte
		stops := []int{0, 1, 20, 45, 100}
		for _, stopAt := range stops {
			all = append(all, recorded(t, seed, stopAt)...)
		}
		if same, err := policy.ReplayPlans(bytes.NewReader(all)); same != len(stops) || err != nil {
			t.Errorf("seed %d: %d plans are reproduced: %v", seed, same, err)
		}
	}
}

// TestAChangedRecordIsFound verifies that a change to any part of a record is detected, including the point at
// which the plan was stopped.
func TestAChangedRecordIsFound(t *testing.T) {
	const stopAt = 45
	for name, c := range map[string]struct {
		change func(r *policy.RecordedPlan, s map[string]any)
		want   string
	}{
		"a decision's node":   {func(r *policy.RecordedPlan, _ map[string]any) { r.Decisions[7].Node = "x" }, `"team/j7"`},
		"a decision's reason": {func(r *policy.RecordedPlan, _ map[string]any) { r.Decisions[7].Reason = "x" }, `"team/j7"`},
		"a decision's saving": {func(r *policy.RecordedPlan, _ map[string]any) { r.Decisions[7].Saving += 1e-15 }, `"team/j7"`},
		"a decision's start": {func(r *policy.RecordedPlan, _ map[string]any) {
			r.Decisions[7].Start = r.Decisions[7].Start.Add(time.Second)
		}, `"team/j7"`},
		"fewer decisions": {func(r *policy.RecordedPlan, _ map[string]any) { r.Decisions = r.Decisions[1:] }, "want 39"},
		"more time":       {func(r *policy.RecordedPlan, _ map[string]any) { r.Looks = 0 }, "differs"},
		"another look":    {func(r *policy.RecordedPlan, _ map[string]any) { r.Looks = 20 }, "differs"},
		"no such look":    {func(r *policy.RecordedPlan, _ map[string]any) { r.Looks = 1e6 }, "stop at check 1000000"},
		"a machine": {func(_ *policy.RecordedPlan, s map[string]any) {
			s["nodes"] = s["nodes"].([]any)[1:]
		}, "differs"},
		"the length of a job": {func(_ *policy.RecordedPlan, s map[string]any) {
			s["queue"].([]any)[7].(map[string]any)["duration"] = 3e12
		}, "differs"},
		"an unsupported version": {func(_ *policy.RecordedPlan, s map[string]any) { s["version"] = 2 }, "version 2"},
	} {
		var r policy.RecordedPlan
		if err := json.Unmarshal(recorded(t, 3, stopAt), &r); err != nil {
			t.Fatal(err)
		}
		var s map[string]any
		if err := json.Unmarshal(r.Snapshot, &s); err != nil {
			t.Fatal(err)
		}
		c.change(&r, s)
		var err error
		if r.Snapshot, err = json.Marshal(s); err != nil {
			t.Fatal(err)
		}
		if err = r.Again(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one that contains %q", name, err, c.want)
		}
	}
	whole := recorded(t, 3, 0)
	if same, err := policy.ReplayPlans(bytes.NewReader(append(whole, whole[:100]...))); same != 1 || err == nil {
		t.Errorf("for an incomplete line: %d, %v", same, err)
	}
}

// TestTheSamePlanIsRecordedOnce verifies that a plan with the same decisions as the previous one is not recorded
// again, regardless of the elapsed time.
func TestTheSamePlanIsRecordedOnce(t *testing.T) {
	s, nodes := waiting(t, 1)
	plan, _ := policy.PlanTogether("plan", s, nodes, func() bool { return false })
	var b bytes.Buffer
	record := policy.RecordPlans(&b, slog.New(slog.DiscardHandler))
	record("plan", s, plan, 0)
	later := *s
	later.Now = s.Now.Add(time.Second)
	for i := range plan {
		if !plan[i].Held(s.Now) {
			plan[i].Window.Start = later.Now
		}
	}
	record("plan", &later, plan, 0)
	if lines := bytes.Count(b.Bytes(), []byte("\n")); lines != 1 {
		t.Errorf("%d lines", lines)
	}
	plan[7].Reason.Saving += 1e-9
	record("plan", &later, plan, 0)
	if lines := bytes.Count(b.Bytes(), []byte("\n")); lines != 2 {
		t.Errorf("%d lines after a change of the savings", lines)
	}
}

// TestWhatCannotBeReadIsNotRecorded verifies that plans that cannot be decoded are not written, and that the reason
// is logged.
func TestWhatCannotBeReadIsNotRecorded(t *testing.T) {
	for name, spoil := range map[string]func(s *sched.Snapshot){
		"has 2000 bytes": func(s *sched.Snapshot) { s.Queue[3].ID = strings.Repeat("x", 2000) },
		"has no site":    func(s *sched.Snapshot) { s.Nodes[3].Site = nil },
	} {
		s, nodes := waiting(t, 1)
		plan, looks := policy.PlanTogether("plan", s, nodes, func() bool { return false })
		spoil(s)
		var b, log bytes.Buffer
		policy.RecordPlans(&b, slog.New(slog.NewTextHandler(&log, nil)))("plan", s, plan, looks)
		if b.Len() > 0 || !strings.Contains(log.String(), "Failed to record") || !strings.Contains(log.String(), name) {
			t.Errorf("%d bytes are recorded, and the log contains %q", b.Len(), log.String())
		}
	}
}
