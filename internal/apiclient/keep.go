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

// Keep calls do again and again until ctx ends. do reports whether it succeeded; a panic in it counts as a failure, and
// is told to panicked. After each call rest waits: 0 after a success, and after a failure a time that grows with each
// and differs between replicas.
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
