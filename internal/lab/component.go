package lab

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// component owns the goroutine of one part of the cluster.
type component struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	err    error // read only after done is closed
}

// startComponent runs run until its context ends. The context keeps ctx's values but not its
// cancellation: the parts of a control plane must end in order, not all at once.
func startComponent(ctx context.Context, name string, run func(context.Context) error) *component {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &component{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		err := run(ctx)
		if ctx.Err() != nil {
			return // what a component says when it is told to end is not news
		}
		c.err = fmt.Errorf("running %s: %w", name, cmp.Or(err, errEnded))
	}()
	return c
}

// stop ends the component and waits for it. It returns the error of a component that had ended on its
// own.
func (c *component) stop() error {
	c.cancel()
	<-c.done
	return c.err
}

// wait calls ready until it reports true, the component ends, or ctx does.
func (c *component) wait(ctx context.Context, ready func(context.Context) bool) error {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for !ready(ctx) {
		select {
		case <-c.done:
			return cmp.Or(c.err, errEnded)
		case <-ctx.Done():
			if outer.Err() == nil {
				return fmt.Errorf("waiting for %s: not ready after %v, try again when the machine is less busy: %w",
					c.name, readyTimeout, context.Cause(ctx))
			}
			return fmt.Errorf("waiting for %s: %w", c.name, context.Cause(ctx))
		case <-tick.C:
		}
	}
	return nil
}

// closed reports whether a channel is.
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
