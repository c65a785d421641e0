package hold

import (
	"context"
	"sync"
)

// calls sends the requests that release, a bounded number at once, those for deadlines first. Each waiting one costs
// a few bytes.
type calls struct {
	mu      sync.Mutex
	waiting [2][]func(context.Context) // the urgent ones, and the others
	running int
}

// add makes a call as soon as there is room for it. spawn starts a goroutine that Run waits for.
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

// work makes calls until there are none. After ctx has ended each fails at once.
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
