package sched_test

import (
	"testing"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// TestWithin also checks that a job without GPUs fits on a node with a negative number of free GPUs, for example
// after the node lost them.
func TestWithin(t *testing.T) {
	free := sched.Resources{MilliCPU: 4000, Memory: 1 << 30, GPU: -2}
	for _, c := range []struct {
		request sched.Resources
		want    bool
	}{
		{sched.Resources{}, true},
		{sched.Resources{MilliCPU: 4000, Memory: 1 << 30}, true},
		{sched.Resources{MilliCPU: 4001}, false},
		{sched.Resources{Memory: 1<<30 + 1}, false},
		{sched.Resources{MilliCPU: 1, GPU: 1}, false},
	} {
		if got := c.request.Within(free); got != c.want {
			t.Errorf("%+v.Within(%+v) = %v", c.request, free, got)
		}
	}
}
