package ledger

import (
	"errors"
	"fmt"
)

// Errors of [Store.Book] that concern one booking. The other bookings of the call are recorded nevertheless.
var (
	ErrOverlap = errors.New("energy of that time is booked for this node")
	ErrPartly  = errors.New("some of its numbers are booked, others are not")
	ErrInvalid = errors.New("the booking contradicts itself") // indicates a bug; ingestion validates batches
)

// ErrReadOnly is returned while the store is not writable, because the disk is full or failed. Reads succeed.
var ErrReadOnly = errors.New("the ledger cannot be written")

// ErrDamaged is returned if stored data is corrupt. Corrupt data is excluded from all results.
var ErrDamaged = errors.New("the ledger is damaged")

// Errors of queries.
var (
	// ErrQuery is returned for invalid queries.
	ErrQuery = errors.New("no such query")
	// ErrTooLarge is returned if a query selects more data than can be summed in one call, or if a record exceeds
	// the size limits. The error that wraps it contains a hint how to narrow the query.
	ErrTooLarge = errors.New("too large")
	// ErrSum is returned if a sum of an answer, or the total, overflows.
	ErrSum = fmt.Errorf("%w: %w: a sum is more than 2,562 MWh, or as many millions in money: ask for less time, or "+
		"for some namespaces, nodes or sites",
		ErrQuery, ErrTooLarge)
)
