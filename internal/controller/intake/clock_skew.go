package intake

import (
	"time"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

const (
	maxAhead   = 2 * time.Minute      // tolerated lead of a node's clock
	maxBehind  = 400 * 24 * time.Hour // maximum age of a batch; older ones come from clocks that were never set
	skewIsTold = 2 * time.Second
)

// correct returns a batch that ends now if its end is too far in the future or in the past. Energy cannot have been
// used in the future. No agent keeps batches for longer than maxBehind, but a clock that was never set shows 1970,
// and each invented year adds rows to the ledger. All other times are accepted, because an agent may have kept its
// batches for a long time.
func (h *Handler) correct(b batch.Batch, now time.Time) batch.Batch {
	ahead := b.End.Sub(now)
	if ahead > skewIsTold {
		h.metrics.skewed.Inc()
	}
	if ahead > maxAhead || ahead < -maxBehind {
		h.metrics.moved.Inc()
		b.SetWall(now)
	}
	return b
}
