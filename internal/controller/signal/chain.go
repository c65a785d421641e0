package signal

import (
	"context"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// poll polls the sources that are due, in their order, up to the first one with a valid status, and returns the
// time of the next poll. Sources with a lower priority are not polled while a higher one is valid. The clock is
// read again for each source, because a request may take more than a minute.
func (k *Keeper) poll(ctx context.Context) time.Time {
	next := k.deps.Clock().Add(idle)
	for _, l := range k.links {
		if now := k.deps.Clock(); !l.next.After(now) {
			k.ask(ctx, l, now)
		}
		next = timeutil.Earlier(next, l.next)
		if !expired(l.status, k.deps.Clock(), k.terms.maxAge) { // only written by this goroutine
			return timeutil.Earlier(next, end(l.status, k.terms.maxAge))
		}
		if !l.asked {
			break // wait for the first poll of this source before polling those with a lower priority
		}
	}
	return next
}

// believed returns the first link with a valid status, or nil.
func (k *Keeper) believed(now time.Time) *link {
	for _, l := range k.links {
		if !expired(l.status, now, k.terms.maxAge) {
			return l
		}
	}
	return nil
}
