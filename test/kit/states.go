package kit

import (
	"context"
	"maps"
	"strings"
)

// States is a store of states, see ledger.StateStore. It fails while Err is set.
type States struct {
	All map[string][]byte
	Err error
}

// SaveState implements ledger.StateStore.
func (s *States) SaveState(_ context.Context, name string, payload []byte) error {
	if s.Err == nil {
		s.All[name] = payload
	}
	return s.Err
}

// States implements ledger.StateStore.
func (s *States) States(_ context.Context, prefix string) (map[string][]byte, error) {
	if s.Err != nil {
		return nil, s.Err
	}
	found := maps.Clone(s.All)
	maps.DeleteFunc(found, func(name string, _ []byte) bool { return !strings.HasPrefix(name, prefix) })
	return found, nil
}
