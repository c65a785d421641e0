// Package bubble advances the fake clock of a testing/synctest bubble. It is for tests only.
package bubble

import (
	"testing/synctest"
	"time"
)

// Advance sleeps for d on the fake clock of the bubble and then waits until every other goroutine in the bubble is
// durably blocked. Everything that is due by then has run when Advance returns. It panics outside a bubble and must
// not be called concurrently within one bubble.
func Advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
