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

// counting counts how often jobs are planned, and answers with what a policy that rolls along says.
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

// hourlyUntil holds until the next hour since a beginning, hour by hour, and lets go at an end.
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

// TestRollingHoldsAreAskedAgain: no news is needed for that, and what they said before does not let them go.
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
		if n := len(c.asked); n < 4 || n > 12 { // at first, and at each of three hours
			t.Errorf("asked %d times: want about 4", n)
		}
	})
}

// TestDeadlineBeatsRolling: promise P1, whatever a policy goes on saying.
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

// TestNothingThatRunsIsSuspended: policies that suspend only choose a start here, even for work that claims to be
// interruptible and on its way.
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
			t.Errorf("%s: what has not begun is not held, though it is dear now: %v", when, d.Reason)
		}
		j.Interruptible, j.Running, j.Done = true, true, time.Hour
		if d := view.Question(begin.Add(time.Hour), j, settings).Queue[0]; d.Interruptible || d.Running {
			t.Errorf("%s is told that it may suspend", when)
		}
	}
}
