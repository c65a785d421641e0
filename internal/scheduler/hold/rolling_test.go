package hold

import (
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/internal/kube"
	"github.com/kubenergy/kubenergy/internal/policy"
	"github.com/kubenergy/kubenergy/internal/sched"
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
