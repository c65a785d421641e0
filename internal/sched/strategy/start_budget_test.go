package strategy_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/schedtest"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// TestADeadlineBeatsEveryBudget checks the following for arbitrary rules, signals and budgets. A job that may wait
// starts no later than its latest start, and not before the budget allows new work unless that is later. A job that
// may not wait starts now.
func TestADeadlineBeatsEveryBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawThreshold(t)
		j := &s.Queue[0]
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			j.AllowedDelay = 0
		case 1:
			j.Released = true
		case 2:
			s.Sites = nil
		}
		closed := time.Duration(rapid.IntRange(-60, 600).Draw(t, "closed")) * time.Minute
		s.Policy.Closed, s.Policy.Budget = s.Now.Add(closed), "month"
		s.Policy.MaxDelay = time.Duration(rapid.IntRange(0, 300).Draw(t, "maxDelay")) * time.Minute
		latest := j.LatestStart()
		if limit := j.Submitted.Add(s.Policy.MaxDelay); s.Policy.MaxDelay > 0 && limit.Before(latest) {
			latest = limit
		}
		name := "least-allocated+" + rapid.SampledFrom([]string{"window", "threshold"}).Draw(t, "when")
		open := *s
		open.Policy.Closed, open.Policy.Budget = time.Time{}, ""
		d, without := planOf(t, name, s), planOf(t, name, &open)
		switch waits := j.AllowedDelay > 0 && !j.Released && latest.After(s.Now); {
		case !waits && d.Held(s.Now):
			t.Fatalf("job without delay is held until %v: %v", d.Window.Start, d.Reason)
		case !waits:
		case d.Window.Start.After(latest):
			t.Fatalf("job is held until %v, but its latest start is %v", d.Window.Start, latest)
		case closed <= 0:
			if d.Window != without.Window || d.Reason.Kind != without.Reason.Kind {
				t.Fatalf("decision = %v, want %v as without a budget", d, without)
			}
		case d.Reason.Kind != sched.BudgetUsedUp || !d.Window.Start.Equal(earliest(latest, s.Policy.Closed)):
			t.Fatalf("decision = %v, want a start at %v", d, earliest(latest, s.Policy.Closed))
		case !strings.Contains(d.Reason.String(), "the energy budget month is exhausted"):
			t.Fatal(d.Reason.String())
		}
	})
}

func earliest(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func planOf(t *rapid.T, name string, s *sched.Snapshot) sched.Decision {
	strategy, err := strategy.New(name)
	if err != nil {
		t.Fatal(err)
	}
	return strategy.Plan(s)[0]
}

func TestWhoAsksForNowDoesNotWaitForABudget(t *testing.T) {
	s := &sched.Snapshot{
		Now: schedtest.Day, Policy: sched.Policy{Closed: schedtest.Day.Add(time.Hour)},
		Queue: []sched.Job{{ID: "j", Submitted: schedtest.Day, Duration: time.Hour, AllowedDelay: 3 * time.Hour}},
	}
	strategy, err := strategy.New("carbon+now")
	if err != nil {
		t.Fatal(err)
	}
	if d := strategy.Plan(s)[0]; d.Held(schedtest.Day) {
		t.Error(d)
	}
}
