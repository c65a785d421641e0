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
