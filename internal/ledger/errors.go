package ledger

import (
	"errors"
	"fmt"
)

// Errors of [Store.Book] that concern one booking: the others of the call are booked all the same.
var (
	ErrOverlap = errors.New("energy of that time is booked for this node")
	ErrPartly  = errors.New("some of its numbers are booked, others are not")
	ErrInvalid = errors.New("the booking contradicts itself") // a programmer's error: ingest checks batches before
)

// ErrReadOnly is returned while nothing can be written: the disk is full, or it failed. Reading works.
var ErrReadOnly = errors.New("the ledger cannot be written")

// ErrDamaged is returned for what is not as it was written. Nothing is computed from it.
var ErrDamaged = errors.New("the ledger is damaged")

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
