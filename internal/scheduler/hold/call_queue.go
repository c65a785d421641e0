package hold

import (
	"context"
	"sync"
)

// calls runs release requests with bounded concurrency. Requests for deadlines take precedence. A queued request
// uses only a few bytes.
type calls struct {
	mu      sync.Mutex
	waiting [2][]func(context.Context) // urgent requests, other requests
	running int
}

// add queues a request and runs it as soon as the concurrency limit allows. spawn starts a goroutine that Run waits
// for.
func (c *calls) add(call func(context.Context), urgent bool, spawn func(func(context.Context))) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of := &c.waiting[1]
	if urgent {
		of = &c.waiting[0]
	}
	*of = append(*of, call)
	if c.running < parallelCalls {
		c.running++
		spawn(c.work)
	}
}

// work runs queued requests until the queue is empty. Once ctx is done, each request fails immediately.
func (c *calls) work(ctx context.Context) {
	for {
		call := c.take()
		if call == nil {
			return
		}
		call(ctx)
	}
}

func (c *calls) take() (call func(context.Context)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, waiting := range c.waiting {
		if len(waiting) > 0 {
			call, c.waiting[i] = waiting[0], waiting[1:]
			return call
		}
	}
	c.waiting = [2][]func(context.Context){}
	c.running--
	return nil
}
