// Package timeutil provides functions on times that are missing in the standard library.
package timeutil

import "time"

// Later returns the later of two times, or the first if they are equal.
func Later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// Earlier returns the earlier of two times, or the first if they are equal.
func Earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
