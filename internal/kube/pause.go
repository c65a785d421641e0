package kube

import (
	"context"
	"time"
)

// Pause waits for so long, or until ctx ends. It reports whether ctx goes on.
func Pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err() == nil
}

// Poke tells the reader of a channel with room for one that something has changed, unless it is to be told already.
func Poke(changed chan<- struct{}) {
	select {
	case changed <- struct{}{}:
	default:
	}
}
