package budget

import (
	"context"
	"sync"
)

const (
	maxErrands    = 1024
	errandWorkers = 4
)

// errand is something that is done beside the looking: nobody's budget waits for it.
type errand struct {
	keys []string // of what is busy until it is done
	do   func(context.Context)
}

// errands wait to be done.
type errands chan *errand

// send queues an errand. One that is lost, because too many wait, is begun again as if we had died.
func (e *Engine) send(to errands, x *errand) {
	e.busy.enter(x.keys...)
	select {
	case to <- x:
	default:
		e.busy.leave(x.keys...)
	}
}

// run does errands until ctx ends.
func (e *Engine) run(ctx context.Context, from errands) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-from:
			e.runOne(ctx, x)
		}
	}
}

func (e *Engine) runOne(ctx context.Context, x *errand) {
	defer e.busy.leave(x.keys...)
	e.safely("an errand", func() { x.do(ctx) })
}

// busy is what this process is doing: it does not take over from itself what takes long.
type busy struct {
	mu   sync.Mutex
	keys map[string]int
}

func (b *busy) enter(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys == nil {
		b.keys = map[string]int{}
	}
	for _, key := range keys {
		b.keys[key]++
	}
}

func (b *busy) leave(keys ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, key := range keys {
		if b.keys[key]--; b.keys[key] <= 0 {
			delete(b.keys, key)
		}
	}
}

func (b *busy) with(key string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.keys[key] > 0
}
