package hold

import (
	"sync"
	"testing"
	"time"
)

func TestHoldsAndReleasesAreTold(t *testing.T) {
	var mu sync.Mutex
	var told []Told
	listen := func(_ *world, c *Config) {
		told = nil
		c.Told = func(d Told) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, d)
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
		if len(told) != 2 {
			t.Fatalf("told %d times: %+v", len(told), told)
		}
		held, released := told[0], told[1]
		if held.Release || !held.Job || held.Namespace != "default" || held.Name != "j" || held.UID == "" || held.Kind != "CheaperLater" {
			t.Errorf("told of the hold: %+v", held)
		}
		if until := held.Start.Sub(began); until < 59*time.Minute || until > 61*time.Minute || held.At.Sub(began) > time.Minute {
			t.Errorf("held after %v until %v", held.At.Sub(began), until)
		}
		if d := held.View.Decide(held.At, held.Work, held.Settings); !d.Window.Start.Equal(held.Start) || d.Reason.Kind.String() != held.Kind {
			t.Errorf("decided again it is %+v", d)
		}
		if !released.Release || released.UID != held.UID || released.Kind != reasonReleased || released.At.Before(held.Start.Add(-time.Minute)) {
			t.Errorf("told of the release: %+v", released)
		}
	})
}

// The same hold is told again when its window moves, and not when it does not.
func TestMovedHoldsAreToldAgain(t *testing.T) {
	var mu sync.Mutex
	var starts []time.Time
	listen := func(_ *world, c *Config) {
		c.Told = func(d Told) {
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
			t.Errorf("told of starts at %v", starts)
		}
	})
}
