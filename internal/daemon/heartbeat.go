package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"
)

// MaxRound is the maximum duration of one round of a loop. A loop is considered stuck if a round takes longer.
const MaxRound = 5 * time.Minute

// Heartbeats detect loops of this process that are stuck in a round. The zero value is ready to use, and is safe
// for concurrent use.
type Heartbeats struct {
	rounds sync.Map // rounds in progress: start time (*time.Time) to loop name
}

type loopKey struct{}

type loop struct {
	beats *Heartbeats
	name  string
}

// Loop returns a context in which each call of [Round] is a round of the named loop.
func (h *Heartbeats) Loop(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, loopKey{}, loop{h, name})
}

// Round calls f as one round of the loop in ctx. If ctx has no loop, Round only calls f. The time between two
// rounds is not limited.
func Round(ctx context.Context, f func()) {
	if l, ok := ctx.Value(loopKey{}).(loop); ok {
		began := new(time.Now())
		l.beats.rounds.Store(began, l.name)
		defer l.beats.rounds.Delete(began)
	}
	f()
}

// Check returns an error if a round has been in progress for longer than MaxRound.
func (h *Heartbeats) Check() error {
	for began, name := range h.rounds.Range {
		if age := time.Since(*began.(*time.Time)); age > MaxRound {
			return fmt.Errorf("loop %q is stuck: its round started %v ago", name, age.Round(time.Second))
		}
	}
	return nil
}

// ServeHTTP implements [http.Handler] for liveness probes. It responds with 503 while [Heartbeats.Check] returns an
// error.
func (h *Heartbeats) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if err := h.Check(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

// Watch calls exit once a loop is stuck. It is intended for processes without a liveness probe. It returns when ctx
// is done.
func (h *Heartbeats) Watch(ctx context.Context, log *slog.Logger, exit func()) {
	tick := time.NewTicker(MaxRound / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if err := h.Check(); err != nil {
			log.Error("Exiting because a loop is stuck", "err", err)
			exit()
			return
		}
	}
}
