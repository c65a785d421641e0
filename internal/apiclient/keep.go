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

// Keep calls do repeatedly until ctx is done. The function do reports whether it succeeded. A panic in do or rest
// is passed to panicked, and a panic in do counts as a failure. After each call, Keep calls rest with the time to
// wait: 0 after a success, otherwise an exponential backoff with jitter.
func Keep(ctx context.Context, do func(context.Context) bool, rest func(context.Context, time.Duration),
	panicked func(any),
) {
	for failures := 0; ctx.Err() == nil; {
		pause := time.Duration(0)
		if survive(func() bool { return do(ctx) }, panicked) {
			failures = 0
		} else {
			longest := min(firstPause<<min(failures, doublings), longestPause)
			pause = longest/2 + rand.N(longest/2)
			failures++
		}
		survive(func() bool { rest(ctx, pause); return true }, panicked)
	}
}

func survive(do func() bool, panicked func(any)) (ok bool) {
	defer func() {
		if p := recover(); p != nil {
			panicked(p)
		}
	}()
	return do()
}
