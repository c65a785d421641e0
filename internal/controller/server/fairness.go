package server

import (
	"context"
	"sync"
)

// fairness limits the number of concurrent queries per caller, so that the queries of a busy caller wait for each
// other and do not delay other callers.
type fairness struct {
	mu sync.Mutex
	of map[string]*own
}

type own struct {
	places  chan struct{}
	callers int // number of requests that run or wait
}

// enter waits until the caller has fewer than each active queries. The caller of enter must call leave afterwards.
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
