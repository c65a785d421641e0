package ledger

import "errors"

// Errors of [Store.Book] that concern one booking: the others of the call are booked all the same.
var (
	ErrOverlap = errors.New("energy of that time is booked for this node")
	ErrPartly  = errors.New("some of its numbers are booked, others are not")
)

// ErrReadOnly is returned while nothing can be written: the disk is full, or it failed. Reading works.
var ErrReadOnly = errors.New("the ledger cannot be written")
