package lab

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// A replay is only successful if recomputing its plans gives the same results.
func TestPlansAreMadeAgain(t *testing.T) {
	s := &Scheduling{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	file := filepath.Join(s.Dir, plansFile)
	if r, err := s.recordPlans([]Trial{{Strategy: "energy"}, {Strategy: Stock}}); err != nil || s.recordPlan != nil {
		t.Fatalf("plans of trials without plans are recorded, error %v", err)
	} else {
		_ = r.close()
	}
	plans, err := s.recordPlans([]Trial{{Strategy: "energy"}, {Strategy: "carbon+plan"}})
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 6, 1, 6, 0, 0, 0, time.UTC)
	for i := range 3 {
		job := sched.Job{ID: "a/" + strings.Repeat("x", 1+i), Submitted: now, Duration: time.Hour}
		snapshot := &sched.Snapshot{Now: now, Queue: []sched.Job{job}}
		plan, looks := policy.PlanTogether("plan", snapshot, nil, func() bool { return false })
		if i == 2 { // one that completes after the loop
			_ = plans.close()
		}
		s.recordPlan("plan", snapshot, plan, looks)
	}
	var out bytes.Buffer
	if err := plansAgain(s.Dir, &out); err != nil || !strings.HasPrefix(out.String(), "recomputed 2 plans") ||
		!strings.Contains(out.String(), "all identical") {
		t.Errorf("%q, %v", out.String(), err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text = bytes.Replace(text, []byte(`"job":"a/xx"`), []byte(`"job":"a/yy"`), 1)
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := plansAgain(s.Dir, &out); err == nil || !strings.Contains(err.Error(), `"a/yy"`) {
		t.Errorf("expected an error that contains the difference, got %v", err)
	}
}
