package ledger

import "context"

// A StateStore stores data that components require after a restart, for example the histories of zones. The data are
// not part of the accounts and are not audited.
type StateStore interface {
	// SaveState stores a state under a name and replaces the previous one.
	SaveState(ctx context.Context, name string, payload []byte) error
	// States returns all states with names that start with prefix, by name. Damaged states are missing, and the error
	// is not nil; the map is only nil if the states cannot be read. States that have not been saved for three years
	// are dropped.
	States(ctx context.Context, prefix string) (map[string][]byte, error)
}

// MaxState is the maximum size of a state in bytes.
const MaxState = 1 << 20
