package kit

import (
	"context"
	"maps"
	"strings"
	"sync"
)

// States is a store of states, see ledger.StateStore. It is safe for concurrent use, except for All.
type States struct {
	All map[string][]byte

	mu  sync.Mutex
	err error
}

// Fail makes all calls fail until it is called with nil.
func (s *States) Fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// SaveState implements ledger.StateStore.
func (s *States) SaveState(_ context.Context, name string, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.All[name] = payload
	}
	return s.err
}

// States implements ledger.StateStore.
func (s *States) States(_ context.Context, prefix string) (map[string][]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return nil, s.err
	}
	found := maps.Clone(s.All)
	maps.DeleteFunc(found, func(name string, _ []byte) bool { return !strings.HasPrefix(name, prefix) })
	return found, nil
}
