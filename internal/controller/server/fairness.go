package server

import (
	"context"
	"sync"
)

// A fairness lets each caller have some of the places only: who asks for much waits for its own answers, not others.
type fairness struct {
	mu sync.Mutex
	of map[string]*own
}

type own struct {
	places  chan struct{}
	callers int // that have a place, or wait for one
}

// enter waits for a place of a caller's own.
func (f *fairness) enter(ctx context.Context, caller string, each int) (leave func(), err error) {
	f.mu.Lock()
	if f.of == nil {
		f.of = map[string]*own{}
	}
	s := f.of[caller]
	if s == nil {
		s = &own{places: make(chan struct{}, each)}
		f.of[caller] = s
	}
	s.callers++
	f.mu.Unlock()
	gone := func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if s.callers--; s.callers == 0 {
			delete(f.of, caller)
		}
	}
	free, err := enter(ctx, s.places)
	if err != nil {
		gone()
		return nil, err
	}
	return func() { free(); gone() }, nil
}
