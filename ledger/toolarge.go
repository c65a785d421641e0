package ledger

import (
	"errors"
	"fmt"
)

// Errors of queries.
var (
	// ErrQuery says that a query makes no sense.
	ErrQuery = errors.New("no such query")
	// ErrTooLarge says that a query asks for more than is summed at once, or a record holds more than is kept; what
	// it wraps says what to narrow.
	ErrTooLarge = errors.New("too large")
	// ErrSum says that a sum of an answer, or their total, is more than can be told.
	ErrSum = fmt.Errorf("%w: %w: a sum is more than 2,562 MWh, or as many millions in money: ask for less time, or "+
		"for some namespaces, nodes or sites",
		ErrQuery, ErrTooLarge)
)
