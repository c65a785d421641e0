package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/wait"
)

// component manages the goroutine of one part of the cluster.
type component struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // must only be read after done is closed
}

// startComponent calls run in a goroutine. The context passed to run has the values of ctx but not its
// cancellation, because the parts of a control plane must be stopped in order.
func startComponent(ctx context.Context, name string, run func(context.Context) error) *component {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &component{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		err := run(ctx)
		if ctx.Err() != nil {
			return // errors after cancellation are expected and ignored
		}
		c.err = fmt.Errorf("running %s: %w", name, cmp.Or(err, errEnded))
	}()
	return c
}

// stop cancels the component and waits until it has returned. It returns the error of a component that ended
// prematurely.
func (c *component) stop() error {
	c.cancel()
	<-c.done
	return c.err
}

// wait polls ready until it returns true, the component ends, or ctx is cancelled.
func (c *component) wait(ctx context.Context, ready func(context.Context) bool) error {
	poll := func(ctx context.Context) (bool, error) {
		if closed(c.done)(ctx) {
			return false, cmp.Or(c.err, errEnded)
		}
		return ready(ctx), nil
	}
	err := wait.PollUntilContextTimeout(ctx, pollInterval, readyTimeout, true, poll)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return fmt.Errorf("waiting for %s: not ready after %v, try again when the machine is less busy: %w", c.name,
			readyTimeout, err)
	}
	return fmt.Errorf("waiting for %s: %w", c.name, cmp.Or(context.Cause(ctx), err))
}

// closed returns a function that reports whether the channel is closed.
func closed(ready <-chan struct{}) func(context.Context) bool {
	return func(context.Context) bool {
		select {
		case <-ready:
			return true
		default:
			return false
		}
	}
}
