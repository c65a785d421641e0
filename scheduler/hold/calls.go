package hold

import (
	"context"
	"sync"
)

// calls makes releases' requests, so many at once, those for deadlines first. However many there are, each waiting
// one costs a few bytes.
type calls struct {
	mu           sync.Mutex
	urgent, rest []func(context.Context)
	running      int
}

// add makes a call as soon as there is room for it. spawn starts a goroutine that Run waits for.
func (c *calls) add(call func(context.Context), urgent bool, spawn func(func(context.Context))) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if urgent {
		c.urgent = append(c.urgent, call)
	} else {
		c.rest = append(c.rest, call)
	}
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
	for _, waiting := range [2]*[]func(context.Context){&c.urgent, &c.rest} {
		if len(*waiting) > 0 {
			call, *waiting = (*waiting)[0], (*waiting)[1:]
			return call
		}
	}
	c.urgent, c.rest = nil, nil
	c.running--
	return nil
}
