package signal

import (
	"context"
	"log/slog"
	"time"

	"github.com/kubenergy/kubenergy/internal/controller/dial"
	"github.com/kubenergy/kubenergy/internal/controller/past"
)

// Deps contains the dependencies of keepers.
type Deps struct {
	Keys    dial.KeyReader // if nil, sources with keys fail
	Calls   Budget         // required by sources that send requests
	Data    string         // data directory; if empty, file sources fail
	Reach   Reach          // the zero value only allows the public internet over HTTPS
	Clock   func() time.Time
	Log     *slog.Logger
	Metrics *Metrics
	States  past.States // stores histories; may be nil
}

// Budget limits the number of requests. To survive restarts and to apply to all replicas together, it is usually
// stored outside of the process. No requests are sent if the budget is unavailable.
type Budget interface {
	// Reserve reserves a request of a source, which may send perHour requests in any period of one hour. If the
	// limit is exhausted, it returns the time when the next request may be reserved.
	Reserve(ctx context.Context, source string, perHour int, now time.Time) (granted bool, next time.Time, err error)
	// Block makes Reserve reject requests of a source until the given time. It replaces an earlier call, even if
	// the new time is earlier.
	Block(ctx context.Context, source string, until, now time.Time) error
}
