// Package bubble advances the fake clock of a testing/synctest bubble. It is for tests only.
package bubble

import (
	"testing/synctest"
	"time"
)

// Advance sleeps for d on the bubble's fake clock, then waits until every other goroutine in the bubble is durably
// blocked, so that everything due by then is done when Advance returns. It panics outside a bubble, and must not be
// called by two goroutines of a bubble at once.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
