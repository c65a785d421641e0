package hold

import (
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// counting counts how often each job is planned and returns the decisions of a rolling policy.
type counting struct {
	mu    sync.Mutex
	asked []time.Time
	say   func(now time.Time, j sched.Job) sched.Decision
}

func (c *counting) opinion(_ *kube.View, now time.Time, j sched.Job, _ policy.Settings) sched.Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked = append(c.asked, now)
	return c.say(now, j)
}

// hourlyUntil returns a policy that holds until the next full hour after begin, and releases at end.
func hourlyUntil(begin, end time.Time) func(time.Time, sched.Job) sched.Decision {
	return func(now time.Time, j sched.Job) sched.Decision {
		if !now.Before(end) {
			return sched.Decision{Job: j.ID, Window: sched.Window{Start: now}}
		}
		next := begin.Add((now.Sub(begin)/time.Hour + 1) * time.Hour)
		return sched.Decision{
			Job: j.ID, Window: sched.Window{Start: next}, Again: next,
			Reason: sched.Reason{Kind: sched.CheaperLater, Until: next, Latest: j.LatestStart()},
		}
	}
}

// TestRollingHoldsAreAskedAgain verifies that a rolling plan is renewed without an update, and that the start of
// the previous plan does not release the hold.
func TestRollingHoldsAreAskedAgain(t *testing.T) {
	c := &counting{}
	var begin time.Time
	during(t, func(w *world, config *Config) {
		begin = time.Now()
		c.say = hourlyUntil(begin, begin.Add(3*time.Hour))
		config.opinion = c.opinion
	}, func(w *world) {
		w.job("j", marked(10*time.Hour))
		left := time.Until(begin.Add(3 * time.Hour))
		w.wantJob("j", left, left+2*time.Second)
		c.mu.Lock()
		defer c.mu.Unlock()
		if n := len(c.asked); n < 4 || n > 12 { // the first plan, and one for each of three hours
			t.Errorf("planned %d times, want about 4", n)
		}
	})
}

// TestDeadlineBeatsRolling verifies that a rolling policy does not hold a job beyond its deadline (promise P1).
func TestDeadlineBeatsRolling(t *testing.T) {
	c := &counting{}
	during(t, func(w *world, config *Config) {
		c.say = hourlyUntil(time.Now(), time.Now().Add(100*time.Hour))
		config.opinion = c.opinion
	}, func(w *world) {
		w.job("j", marked(90*time.Minute))
		w.wantJob("j", 89*time.Minute, 90*time.Minute)
	})
}

// TestNothingThatRunsIsSuspended verifies that policies that suspend jobs only choose a start in the hold loop,
// even for work that is declared as interruptible and running.
func TestNothingThatRunsIsSuspended(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	values := make([]float64, 48)
	for i := range values {
		if values[i] = 500; i > 3 {
			values[i] = 10
		}
	}
	series, err := grid.NewSeries(begin, time.Hour, values)
	if err != nil {
		t.Fatal(err)
	}
	contents := kube.Contents{Sites: []*sched.Site{{Name: "here", Carbon: grid.Signal{Series: series}}}}
	view, err := contents.View()
	if err != nil {
		t.Fatal(err)
	}
	_, suspending := strategy.Families()
	if len(suspending) == 0 {
		t.Fatal("no policy suspends")
	}
	for _, when := range suspending {
		j := sched.Job{
			ID: "j", Submitted: begin, Duration: 5 * time.Hour, AllowedDelay: 12 * time.Hour,
			Request: sched.Resources{MilliCPU: 1000},
		}
		settings := policy.Settings{Terms: policy.Terms{When: when}}
		if d := view.Decide(begin, j, settings); !d.Held(begin) {
			t.Errorf("%s: a job that has not started is not held despite the current cost: %v", when, d.Reason)
		}
		j.Interruptible, j.Running, j.Done = true, true, time.Hour
		if d := view.Question(begin.Add(time.Hour), j, settings).Queue[0]; d.Interruptible || d.Running {
			t.Errorf("the policy %s may suspend the job", when)
		}
	}
}
