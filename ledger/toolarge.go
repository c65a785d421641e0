package ledger

import "errors"

// Errors of queries.
var (
	// ErrQuery says that a query makes no sense.
	ErrQuery = errors.New("no such query")
	// ErrTooLarge says that a query asks for more than is summed at once, or a record holds more than is kept; what it wraps says what
	// to narrow.
	ErrTooLarge = errors.New("too large")
)
