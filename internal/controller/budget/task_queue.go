package budget

import (
	"context"
	"sync"
)

// A lane is a bounded queue of tasks with workers of its own, so that slow webhooks delay no event and slow marks
// delay no webhook. Suspending goes through no lane.
type lane int

const (
	telling lane = iota // logs, events, and the results of suspending
	marking             // writes on Jobs and pods
	posting             // calls webhooks
	lanes
)

const (
	maxTasks        = 1024 // in a lane
	laneWorkers     = 4
	maxPerNamespace = 16 // posts of a namespace that wait or run: a webhook that hangs delays its own namespace alone
)

// task is work that the sweep leaves to a lane.
type task struct {
	keys      []string // of the actions that it carries out, and of what it is counted under
	namespace string
	do        func(context.Context)
}

// tasks are those of an engine. A task that does not fit is dropped: a later sweep begins its actions again, as it does
// after a crash.
type tasks struct {
	waiting [lanes]chan *task
	mu      sync.Mutex
	busy    map[string]int // by key: this process does not take over from itself
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

// isBusy reports whether an action waits in a lane or is carried out.
func (t *tasks) isBusy(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.busy[key] > 0
}

// work carries out the tasks of a lane until ctx ends.
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
	e.safely("a task", func() { x.do(ctx) })
}
