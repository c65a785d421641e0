package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/access"
	"github.com/kubenergy/kubenergy/internal/ledger"
)

// failure is an error with an HTTP status and a text for the client.
type failure struct {
	status int
	text   string
	retry  time.Duration // value of Retry-After; 0 omits the header
}

func (f *failure) Error() string { return f.text }

func fail(status int, format string, args ...any) *failure {
	return &failure{status: status, text: fmt.Sprintf(format, args...)}
}

// explain writes an error response. Internal errors are logged, and their details are not sent to the client.
func (s *server) explain(w http.ResponseWriter, r *http.Request, rt *route, err error) {
	var f *failure
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &f):
	case errors.As(err, &tooLarge):
		f = fail(http.StatusRequestEntityTooLarge, "the request body exceeds %d bytes", tooLarge.Limit)
	case errors.Is(err, ledger.ErrReadOnly):
		f = &failure{http.StatusServiceUnavailable, "the ledger is currently read-only", readOnlyFor}
	case r.Context().Err() != nil && errors.Is(r.Context().Err(), context.DeadlineExceeded):
		f = &failure{http.StatusServiceUnavailable, "the request timed out; request less data or retry", busyFor}
	case r.Context().Err() != nil:
		return // the client disconnected
	default:
		s.Log.Error("Failed to handle a request", "route", rt.path, "error", err)
		f = fail(http.StatusInternalServerError, "internal error: see the log of kubenergy-controller")
	}
	writeError(w, f)
}

const readOnlyFor = 10 * time.Second

func writeError(w http.ResponseWriter, f *failure) {
	w.Header().Del("ETag")
	if f.retry > 0 {
		access.Busy(w, f.status, f.retry, f.text)
	} else {
		access.Answer(w, f.status, f.text)
	}
}

// unreadable converts an error from reading a request body to an error with a status. A body that is too long keeps
// its error type, which explain handles.
func unreadable(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return fail(http.StatusBadRequest, "reading the request body: %.100s", err)
}
