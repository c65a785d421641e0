package ledger

import "context"

// A StateStore stores what components have to know after a restart, for example the histories of zones. It is not
// part of the accounts and is not audited.
type StateStore interface {
	// SaveState stores a state under a name and replaces the previous one.
	SaveState(ctx context.Context, name string, payload []byte) error
	// States returns the states whose names start with prefix, by name. States that are damaged are missing, and the
	// error is not nil. States that have not been saved for three years are dropped.
	States(ctx context.Context, prefix string) (map[string][]byte, error)
}

// MaxState is the maximum size of a state in bytes.
const MaxState = 1 << 20
