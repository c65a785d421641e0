package dial

import (
	"errors"
	"fmt"
	"time"
)

// Reason is the reason for a failed request or a rejected response. It is used as a metric label, so the set is
// small and fixed.
type Reason string

// Reasons of errors. Meters use only auth, address, size, shape, range, missing and http.
const (
	ReasonZone    Reason = "zone"    // the response is for another zone or for none
	ReasonStale   Reason = "stale"   // the timestamp is too old
	ReasonFrozen  Reason = "frozen"  // the values have not changed for an implausibly long time
	ReasonRange   Reason = "range"   // a value is out of range
	ReasonShape   Reason = "shape"   // the body is not in the documented format
	ReasonUnit    Reason = "unit"    // the unit does not match the quantity
	ReasonKind    Reason = "kind"    // marginal instead of average values, or vice versa
	ReasonAuth    Reason = "auth"    // the key or password is missing or was rejected
	ReasonRate    Reason = "rate"    // rejected by the rate limit of the provider or of the controller
	ReasonSize    Reason = "size"    // the response is too large
	ReasonAddress Reason = "address" // the address is not permitted
	ReasonTime    Reason = "time"    // a timestamp is invalid
	ReasonMissing Reason = "missing" // no current value, or no such channel
	ReasonHTTP    Reason = "http"    // all other errors: connection refused or reset, timeout, server error
)

// Error describes a failed request or a rejected response.
type Error struct {
	Reason Reason
	Status int           // HTTP status; 0 if no error status was received
	Wait   time.Duration // minimum time before the next request; 0 if not specified by the server
	Err    error
}

// Error returns the message of the cause.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Refuse returns an Error with the given reason and a formatted message.
func Refuse(reason Reason, format string, args ...any) error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}

// ReasonOf returns the reason of an error. It returns ReasonHTTP if err is not an Error.
func ReasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ReasonHTTP
}

// HasStatus reports whether err is an Error with the given HTTP status.
func HasStatus(err error, status int) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.Status == status
}
