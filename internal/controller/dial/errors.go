package dial

import (
	"errors"
	"fmt"
	"time"
)

// Reason is why an answer was not believed, or why there was none: a label of metrics, so the set is small and fixed.
type Reason string

// The reasons. Of meters there are auth, address, size, shape, range, missing and http alone.
const (
	ReasonZone    Reason = "zone"    // of another zone, or of none
	ReasonStale   Reason = "stale"   // too old by its own timestamp
	ReasonFrozen  Reason = "frozen"  // has not moved for longer than a grid stands still
	ReasonRange   Reason = "range"   // a value that cannot be
	ReasonShape   Reason = "shape"   // not the text that the provider or device documents
	ReasonUnit    Reason = "unit"    // in a unit that does not fit the quantity
	ReasonKind    Reason = "kind"    // marginal where average is wanted, or the other way round
	ReasonAuth    Reason = "auth"    // the key or password is missing or refused
	ReasonRate    Reason = "rate"    // the provider, or our own limit, allows no more requests now
	ReasonSize    Reason = "size"    // longer than any honest answer
	ReasonAddress Reason = "address" // leads to where it may not be asked
	ReasonTime    Reason = "time"    // a timestamp that cannot be
	ReasonMissing Reason = "missing" // says nothing about now, or has no such channel
	ReasonHTTP    Reason = "http"    // anything else on the way: refused, reset, too slow, a server's error
)

// Error is a request that failed or an answer that was refused.
type Error struct {
	Reason Reason
	Status int           // of HTTP; 0: there was no answer, or a good one
	Wait   time.Duration // the server asks not to be asked again before; 0: it does not say
	Err    error
}

// Error returns the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Refuse returns an Error.
func Refuse(reason Reason, format string, args ...any) error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// ReasonOf returns the reason of an error; one that has none came from the way to the server.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ReasonHTTP
}

// HasStatus reports whether an error is an answer with this status.
func HasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}
