package kube

import (
	"context"
	"time"
)

// Pause waits for the given time or until ctx is done. It reports whether ctx is still active.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// Poke sends to a channel with a buffer of one unless a value is already pending. It does not block.
func Poke(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
