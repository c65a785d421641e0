package power

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"time"
)

// stuckAfter is how long the loop may make no progress. A round begins at least every 5 s, and each of its steps ends
// within 5 s.
const stuckAfter = 2 * time.Minute

// heartbeat records when the loop last made progress. It is the handler of the liveness probe.
type heartbeat struct{ last atomic.Pointer[time.Time] }

func (h *heartbeat) beat() {
	now := time.Now()
	h.last.Store(&now)
}

// ServeHTTP answers 503 if the loop is stuck. A loop that still waits for the API server is not: a restart is no help.
func (h *heartbeat) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	if last := h.last.Load(); last != nil && time.Since(*last) > stuckAfter {
		http.Error(w, fmt.Sprintf("no progress for %.0f s", time.Since(*last).Seconds()), http.StatusServiceUnavailable)
	}
}
