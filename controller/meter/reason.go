package meter

import (
	"errors"
	"fmt"
	"net/http"
)

// Reason is why a poll gave nothing: a label of the metrics, so the set is small and fixed.
type Reason string

// The reasons.
const (
	ReasonHTTP    Reason = "http"    // refused, reset, too slow, a status that is no success
	ReasonAuth    Reason = "auth"    // the password is missing or refused
	ReasonAddress Reason = "address" // leads to where meters may not be asked
	ReasonSize    Reason = "size"    // longer than any honest answer
	ReasonShape   Reason = "shape"   // not the text that the device documents
	ReasonRange   Reason = "range"   // a value that cannot be
	ReasonMissing Reason = "missing" // the channel is not there, or says that it does not measure
)

var reasons = []Reason{ReasonHTTP, ReasonAuth, ReasonAddress, ReasonSize, ReasonShape, ReasonRange, ReasonMissing}

// Error is a poll that gave nothing.
type Error struct {
	Reason Reason
	Status int // of HTTP; 0: there was no answer, or a good one
	Err    error
}

// Error returns the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func refuse(reason Reason, format string, args ...any) error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

func reasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ReasonHTTP
}

// absent reports whether a server said that there is no such thing.
func absent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == http.StatusNotFound
}
