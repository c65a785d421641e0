package ledger

import (
	"errors"
	"fmt"
)

// Errors of [Store.Book] that concern one booking. The other bookings of the call are recorded nevertheless.
var (
	ErrOverlap = errors.New("energy of this interval is already recorded for the node")
	ErrPartly  = errors.New("some of the sequence numbers are already recorded and others are not")
	ErrInvalid = errors.New("invalid booking") // indicates a bug; ingestion validates batches
)

// ErrReadOnly is returned while the store is not writable, because the disk is full or failed. Reads succeed.
var ErrReadOnly = errors.New("ledger is not writable")

// ErrPaused is returned by [Ledger.Book], together with [ErrReadOnly], while the ledger waits after a failed write.
// The booking was not recorded.
var ErrPaused = errors.New("waiting after a failed write")

// ErrDamaged is returned if stored data is corrupt. Corrupt data is excluded from all results.
var ErrDamaged = errors.New("ledger is damaged")

// Errors of queries.
var (
	// ErrQuery is returned for invalid queries.
	ErrQuery = errors.New("invalid query")
	// ErrTooLarge is returned if a query selects more data than can be summed in one call, or if a record exceeds
	// the size limits. The error that wraps it contains a hint how to narrow the query.
	ErrTooLarge = errors.New("too large")
	// ErrSum is returned if a sum of an answer, or the total, overflows.
	ErrSum = fmt.Errorf("%w: %w: a sum exceeds 2,562 MWh, or 2,562 million in money: select a shorter interval, or "+
		"fewer namespaces, nodes or sites",
		ErrQuery, ErrTooLarge)
)
