package ledger

import "errors"

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
