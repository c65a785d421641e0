package budget

import (
	"context"
	"sync"
)

// A lane is a bounded queue of tasks with its own workers. Slow webhooks do not delay events, and slow patches do
// not delay webhooks. Suspending does not use a lane.
type lane int

const (
	telling lane = iota // logs, events and results of suspending
	marking             // patches of Jobs and pods
	posting             // webhook calls
	lanes
)

const (
	maxTasks        = 1024 // per lane
	laneWorkers     = 4
	maxPerNamespace = 16 // queued and running posts per namespace, so that a slow webhook does not delay others
)

// task is work that is carried out by a lane after the sweep.
type task struct {
	keys      []string // keys of its actions and of the namespace limit
	namespace string
	do        func(context.Context)
}

// tasks contains the lanes of an engine. A task that does not fit is dropped, and a later sweep starts its actions
// again, as after a crash.
type tasks struct {
	waiting [lanes]chan *task
	mu      sync.Mutex
	busy    map[string]int // by key, so that this process does not start an action twice
}

func newTasks() *tasks {
	t := &tasks{busy: map[string]int{}}
	for l := range t.waiting {
		t.waiting[l] = make(chan *task, maxTasks)
	}
	return t
}

func (t *tasks) add(to lane, x *task) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if to == posting {
		posts := "posts of " + x.namespace
		if t.busy[posts] >= maxPerNamespace {
			return
		}
		x.keys = append(x.keys, posts)
	}
	select {
	case t.waiting[to] <- x:
		t.count(x, 1)
	default:
	}
}

func (t *tasks) count(x *task, by int) {
	for _, key := range x.keys {
		if t.busy[key] += by; t.busy[key] == 0 {
			delete(t.busy, key)
		}
	}
}

// isBusy reports whether an action is queued or running.
func (t *tasks) isBusy(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy[key] > 0
}

// work runs the tasks of a lane until ctx is done.
func (e *Engine) work(ctx context.Context, l lane) {
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-e.tasks.waiting[l]:
			e.runTask(ctx, x)
		}
	}
}

func (e *Engine) runTask(ctx context.Context, x *task) {
	defer func() {
		e.tasks.mu.Lock()
		defer e.tasks.mu.Unlock()
		e.tasks.count(x, -1)
	}()
	e.safely("task", func() { x.do(ctx) })
}
