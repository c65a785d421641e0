package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubenergy/kubenergy/internal/ledger"
	"github.com/kubenergy/kubenergy/test/kit"
	"github.com/kubenergy/kubenergy/test/kit/bubble"
)

// TestRestore checks that the statistics of owners after restarts equal those of a controller that was not restarted,
// also if the store is not available at the start and batches arrive before it is.
func TestRestore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leads atomic.Bool
		begin := func(states *kit.States) (*State, func()) {
			s := state(Options{Now: time.Now, Container: func(_, id string) string { return id }})
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() {
				defer close(done)
				s.Keep(ctx, states, leads.Load, slog.New(slog.DiscardHandler))
			}()
			return s, func() { cancel(); <-done }
		}
		states := &kit.States{All: map[string][]byte{"power/x": []byte("{")}}
		steady, endSteady := begin(&kit.States{All: map[string][]byte{}})
		s, end := begin(states)
		bubble.Advance(time.Minute)
		leads.Store(true)
		for i := range 60 {
			b := booking(&watch{time.Now()}, "n1", 500, replica("a", 40+float64(i%7)), replica("b", 50))
			steady.Booked(b, booked)
			s.Booked(b, booked)
			if i%20 == 10 {
				end()
				states.Fail(errors.New("not open"))
				s, end = begin(states)
				bubble.Advance(time.Minute)
				states.Fail(nil)
			}
			bubble.Advance(tick)
		}
		bubble.Advance(2 * time.Minute)

		want, got := steady.Workloads(), s.Workloads()
		if len(got.Workloads) != 1 || len(got.Workloads[0].Containers) != 2 {
			t.Fatalf("got %+v", got)
		}
		// The first batch of a node after a restart only lists its pods.
		w, g := want.Workloads[0], got.Workloads[0]
		if g.Samples < w.Samples-6 || math.Abs(g.Watts/w.Watts-1) > .01 || math.Abs(g.Deviation/w.Deviation-1) > .05 {
			t.Errorf("after three restarts: got %+v, want %+v", g, w)
		}
		end()
		endSteady()
	})
}

// TestStoredOwnersAreLimited checks that the owners of a namespace that were updated last are stored if there are too
// many, and that only changed namespaces are stored.
func TestStoredOwnersAreLimited(t *testing.T) {
	w := &watch{noon}
	s := state(Options{Now: w.Now})
	for i := range 8000 {
		u := replica(fmt.Sprint("u", i), 10)
		u.owner = fmt.Sprintf("job-%d-%s", i, strings.Repeat("x", 50))
		for range 2 {
			w.now = w.now.Add(time.Second)
			s.Booked(booking(w, "n1", 500, u), booked)
		}
	}
	states := &kit.States{All: map[string][]byte{}}
	next, err := s.store(t.Context(), states, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	text := states.All[statePrefix+"shop"]
	if len(text) > ledger.MaxState || !strings.Contains(string(text), "job-7999-") || strings.Contains(string(text), "job-9-") {
		t.Errorf("stored %d bytes", len(text))
	}
	clear(states.All)
	w.now = w.now.Add(time.Hour)
	if _, err := s.store(t.Context(), states, next.Add(time.Hour)); err != nil || len(states.All) > 0 {
		t.Errorf("stored %d unchanged namespaces, error %v", len(states.All), err)
	}
}
