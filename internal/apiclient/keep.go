package apiclient

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstPause   = time.Second
	doublings    = 6
	longestPause = time.Minute
)

// Keep calls do repeatedly until ctx is done. The function do reports whether it succeeded. After each call, Keep
// calls rest with the time to wait: 0 after a success, otherwise an exponential backoff with jitter. Both must recover
// from their panics.
func Keep(ctx context.Context, do func(context.Context) bool, rest func(context.Context, time.Duration)) {
	for failures := 0; ctx.Err() == nil; {
		pause := time.Duration(0)
		if do(ctx) {
			failures = 0
		} else {
			longest := min(firstPause<<min(failures, doublings), longestPause)
			pause = longest/2 + rand.N(longest/2)
			failures++
		}
		rest(ctx, pause)
	}
}
