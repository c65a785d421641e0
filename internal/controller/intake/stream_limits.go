package intake

import (
	"time"

	"golang.org/x/time/rate"

	"github.com/kubenergy/kubenergy/internal/energy/batch"
)

// What makes a row in the ledger each time a node may do so often in a day, and at once after a quiet one. Machines
// start rarely, agents keep their streams, and virtual machines seldom move.
const (
	maxBegun   = 50
	maxParents = 16
)

// aDay allows so much at once, and as much again in a day.
func aDay(most int) *rate.Limiter {
	return rate.NewLimiter(rate.Every(24*time.Hour/time.Duration(most)), most)
}

// begins reports whether a batch may be booked if it begins a stream, or leaves out time after what was booked
// before, as estimates may: the ledger keeps a row of each stream, and of each time without gaps. Where it is not
// booked after all, undo gives that back.
func (n *node) begins(b *batch.Batch, agentless bool, now time.Time) (undo func(), wait time.Duration, ok bool) {
	if p, known := n.last(&b.Stream); known && (agentless || p.end == b.StartSinceBoot) {
		return func() {}, 0, true
	}
	r := n.begun.ReserveN(now, 1)
	if wait = r.DelayFrom(now); wait > 0 {
		r.CancelAt(now)
		return nil, wait, false
	}
	return func() { r.CancelAt(now) }, 0, true
}
