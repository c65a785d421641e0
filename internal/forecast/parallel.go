package forecast

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// inParallel calls f for 0 to n-1 on all processors and returns the error of the least that failed. The calls must not
// depend on each other: then neither does the result on how many processors there are.
func inParallel(n int, f func(i int) error) error {
	errs := make([]error, n)
	var panicked atomic.Pointer[any] // in a goroutine of its own, it would end the process: it is the caller's
	var next atomic.Int64
	var done sync.WaitGroup
	for range min(n, runtime.GOMAXPROCS(0)) {
		done.Go(func() {
			defer func() {
				if what := recover(); what != nil {
					// The caller's own stack says nothing of it.
					panicked.Store(new(any(fmt.Sprintf("%v, in\n%s", what, debug.Stack()))))
				}
			}()
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				errs[i] = f(i)
			}
		})
	}
	done.Wait()
	if what := panicked.Load(); what != nil {
		panic(*what)
	}
	return cmp.Or(errs...)
}
