package forecast

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// inParallel calls f for 0 to n-1 on the given number of processors, where 0 means all, and returns the error of the
// lowest index that failed. The calls must be independent of each other, so that the result does not depend on the
// number of processors.
func inParallel(processors, n int, f func(i int) error) error {
	errs := make([]error, n)
	var panicked atomic.Pointer[any] // passed to the caller, to not end the process
	var next atomic.Int64
	var done sync.WaitGroup
	for range min(n, cmp.Or(processors, runtime.GOMAXPROCS(0))) {
		done.Go(func() {
			defer func() {
				if what := recover(); what != nil {
					// The stack of the caller does not contain the origin.
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
