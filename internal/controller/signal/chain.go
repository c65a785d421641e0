package signal

import (
	"context"
	"time"

	"github.com/kubenergy/kubenergy/internal/timeutil"
)

// poll asks the sources whose time has come, down to the first that has something to believe, and returns when to poll
// again. While that one is good those below it are left alone. Asking may take more than a minute, so each source has a
// present of its own.
func (k *Keeper) poll(ctx context.Context) time.Time {
	next := k.deps.Clock().Add(idle)
	for _, l := range k.links {
		if now := k.deps.Clock(); !l.next.After(now) {
			k.ask(ctx, l, now)
		}
		next = timeutil.Earlier(next, l.next)
		if !expired(l.status, k.deps.Clock(), k.terms.maxAge) { // which this goroutine alone writes
			return timeutil.Earlier(next, end(l.status, k.terms.maxAge))
		}
		if !l.asked {
			break // it is about to be asked: whether those below are needed is not known yet
		}
	}
	return next
}

// believed returns the first link with a status to believe, or nil.
func (k *Keeper) believed(now time.Time) *link {
	for _, l := range k.links {
		if !expired(l.status, now, k.terms.maxAge) {
			return l
		}
	}
	return nil
}
