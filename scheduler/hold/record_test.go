package hold

import (
	"sync"
	"testing"
	"time"
)

func TestHoldsAndReleasesAreRecorded(t *testing.T) {
	var mu sync.Mutex
	var recorded []Record
	listen := func(_ *world, c *Config) {
		recorded = nil
		c.Record = func(d Record) {
			mu.Lock()
			defer mu.Unlock()
			recorded = append(recorded, d)
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
		if held.Release || !held.Job || held.Namespace != "default" || held.Name != "j" || held.UID == "" ||
			held.Kind != "CheaperLater" {
			t.Errorf("recorded of the hold: %+v", held)
		}
		if until := held.Start.Sub(began); until < 59*time.Minute || until > 61*time.Minute ||
			held.At.Sub(began) > time.Minute {
			t.Errorf("held after %v until %v", held.At.Sub(began), until)
		}
		if d := held.View.Decide(held.At, held.Work, held.Settings); !d.Window.Start.Equal(held.Start) ||
			d.Reason.Kind.String() != held.Kind {
			t.Errorf("decided again it is %+v", d)
		}
		if !released.Release || released.UID != held.UID || released.Kind != reasonReleased ||
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
		c.Record = func(d Record) {
			mu.Lock()
			defer mu.Unlock()
			if !d.Release {
				starts = append(starts, d.Start)
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
