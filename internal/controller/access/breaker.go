package access

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// isAway reports whether err indicates that the API server is unavailable. It returns false if the API server
// rejected an invalid request, because such an error must not affect other requests.
func isAway(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return true
	}
	switch status.Status().Code {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusConflict, http.StatusRequestEntityTooLarge,
		http.StatusUnprocessableEntity:
		return false
	}
	return true
}

// pause is the time between attempts while the API server is unavailable.
const pause = 5 * time.Second

// A breaker is a circuit breaker that suppresses reviews while the API server is unavailable, because each of them
// would run into its timeout. It periodically allows a single request as a probe. It is safe for concurrent use.
type breaker struct {
	until atomic.Pointer[time.Time] // nil if the API server is available
}

// away reports whether requests must be suppressed now. If the last request failed at least pause ago, it allows a
// single request and suppresses others until that request completes or another pause has elapsed.
func (b *breaker) away(now time.Time) bool {
	until := b.until.Load()
	if until == nil {
		return false
	}
	if now.Before(*until) && until.Sub(now) <= pause {
		return true
	}
	return !b.until.CompareAndSwap(until, new(now.Add(pause))) // only one concurrent caller succeeds
}

// down reports whether the last request failed. Unlike away, it never allows a probe.
func (b *breaker) down() bool { return b.until.Load() != nil }

func (b *breaker) answered() { b.until.Store(nil) }

func (b *breaker) failed(now time.Time) { b.until.Store(new(now.Add(pause))) }
