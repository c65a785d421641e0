package access

import (
	"errors"
	"net/http"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// isAway reports whether an error says that the API server cannot tell, and not that it takes no such question: one odd
// question must not keep back those of others.
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

// pause is for how long nothing is asked of an API server that did not answer.
const pause = 5 * time.Second

// A breaker keeps questions back while the API server does not answer: each would wait for its time limit. From time
// to time one is let through, to see.
type breaker struct {
	until atomic.Pointer[time.Time] // nil: it answers
}

// away reports whether not to ask now. Where the API server has not answered lately, it lets one question through and
// keeps the others back until there is an answer.
func (b *breaker) away(now time.Time) bool {
	until := b.until.Load()
	if until == nil {
		return false
	}
	if now.Before(*until) && until.Sub(now) <= pause {
		return true
	}
	return !b.until.CompareAndSwap(until, new(now.Add(pause))) // of several at once, one asks
}

// down reports whether the API server has not answered lately. It lets nothing through.
func (b *breaker) down() bool { return b.until.Load() != nil }

func (b *breaker) answered() { b.until.Store(nil) }

func (b *breaker) failed(now time.Time) { b.until.Store(new(now.Add(pause))) }
