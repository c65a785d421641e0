package hold

import (
	"sync"
	"testing"
	"time"

	"github.com/kubenergy/kubenergy/sched"
	"github.com/kubenergy/kubenergy/scheduler/record"
)

func TestHoldsAndReleasesAreRecorded(t *testing.T) {
	var mu sync.Mutex
	var recorded []record.Entry
	listen := func(_ *world, c *Config) {
		recorded = nil
		c.Record = func(e *record.Entry) {
			mu.Lock()
			defer mu.Unlock()
			recorded = append(recorded, *e)
		}
	}
	during(t, listen, func(w *world) {
		began := time.Now()
		w.green(time.Hour)
		w.job("j", marked(3*time.Hour))
		w.job("at-once", marked(time.Minute)) // the window is beyond its delay
		time.Sleep(2 * time.Hour)
		mu.Lock()
		defer mu.Unlock()
		if len(recorded) != 2 {
			t.Fatalf("recorded %d times: %+v", len(recorded), recorded)
		}
		held, released := recorded[0], recorded[1]
		if held.Action != record.Hold || held.OwnerKind != "Job" || held.Namespace != "default" || held.Owner != "j" ||
			held.UID == "" ||
			held.Reason != "CheaperLater" {
			t.Errorf("recorded of the hold: %+v", held)
		}
		if until := held.Start.Sub(began); until < 59*time.Minute || until > 61*time.Minute ||
			held.At.Sub(began) > time.Minute {
			t.Errorf("held after %v until %v", held.At.Sub(began), until)
		}
		strategy, err := sched.New(held.Strategy)
		if err != nil {
			t.Fatal(err)
		}
		if d := strategy.Plan(held.Question)[0]; !d.Window.Start.Equal(held.Start) ||
			d.Reason.Kind.String() != held.Reason {
			t.Errorf("decided again it is %+v", d)
		}
		if released.Action != record.Release || released.UID != held.UID || released.Reason != reasonReleased ||
			released.At.Before(held.Start.Add(-time.Minute)) {
			t.Errorf("recorded of the release: %+v", released)
		}
	})
}

// The same hold is recorded again when its window moves, and not when it does not.
func TestMovedHoldsAreRecordedAgain(t *testing.T) {
	var mu sync.Mutex
	var starts []time.Time
	listen := func(_ *world, c *Config) {
		c.Record = func(e *record.Entry) {
			mu.Lock()
			defer mu.Unlock()
			if e.Action == record.Hold {
				starts = append(starts, e.Start)
			}
		}
	}
	during(t, listen, func(w *world) {
		began := time.Now()
		for _, after := range []time.Duration{time.Hour, time.Hour, 2 * time.Hour} {
			w.green(after - time.Since(began).Truncate(time.Minute))
			if after == time.Hour && len(starts) == 0 {
				w.job("j", marked(3*time.Hour))
			}
			time.Sleep(2 * time.Minute)
		}
		mu.Lock()
		defer mu.Unlock()
		if len(starts) != 2 || starts[1].Sub(starts[0]) < 50*time.Minute {
			t.Errorf("recorded of starts at %v", starts)
		}
	})
}
