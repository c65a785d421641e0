package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// MaxRound is how long one round of a loop may take. A longer one counts as stuck.
const MaxRound = 5 * time.Minute

// Heartbeats detect loops of this process that are stuck in a round. The zero value is ready to use, and is safe for
// concurrent use.
type Heartbeats struct {
	mu     sync.Mutex
	rounds map[*round]struct{} // in progress
}

type round struct {
	loop  string
	began time.Time
}

type loopKey struct{}

type loop struct {
	beats *Heartbeats
	name  string
}

// Loop returns a context whose calls of [Round] are rounds of the named loop.
func (h *Heartbeats) Loop(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, loopKey{}, loop{h, name})
}

// Round calls f as one round of the loop of ctx. Without a loop in ctx it only calls f. Between two rounds a loop may
// wait for as long as it likes.
func Round(ctx context.Context, f func()) {
	l, ok := ctx.Value(loopKey{}).(loop)
	if !ok {
		f()
		return
	}
	r := &round{l.name, time.Now()}
	h := l.beats
	h.mu.Lock()
	if h.rounds == nil {
		h.rounds = map[*round]struct{}{}
	}
	h.rounds[r] = struct{}{}
	h.mu.Unlock()
	defer func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.rounds, r)
	}()
	f()
}

// Check returns an error if a round has been in progress for longer than MaxRound.
func (h *Heartbeats) Check() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.rounds {
		if age := time.Since(r.began); age > MaxRound {
			return fmt.Errorf("loop %q is stuck: its round began %v ago", r.loop, age.Round(time.Second))
		}
	}
	return nil
}

// Watch calls exit once a loop is stuck. It is for a process that nothing probes. It returns when ctx ends.
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
			log.Error("Exiting so that the process is started again", "err", err)
			exit()
			return
		}
	}
}
