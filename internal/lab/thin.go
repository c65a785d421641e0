package lab

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sim"
)

// thin reduces a scenario to jobs that can be replayed in real time: jobs of the first hours that fit on some empty
// node, evenly sampled and sorted by
// submit time. It reports the omitted jobs on w.
func thin(s *sim.Scenario, jobs int, span time.Duration, w io.Writer) {
	before := len(s.Jobs)
	s.Jobs = slices.Clone(s.Jobs)
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j sched.Job) bool { return j.Submitted.Sub(s.Start) >= span })
	if late := before - len(s.Jobs); late > 0 {
		fmt.Fprintf(w, "skipped %d jobs submitted after the first %v\n", late, span)
	}
	before = len(s.Jobs)
	s.Jobs = slices.DeleteFunc(s.Jobs, func(j sched.Job) bool {
		return !slices.ContainsFunc(s.Nodes, func(n sched.Node) bool { return j.Fits(&n) })
	})
	if large := before - len(s.Jobs); large > 0 {
		fmt.Fprintf(w, "skipped %d jobs that do not fit on any node\n", large)
	}
	slices.SortStableFunc(s.Jobs, func(a, b sched.Job) int { return a.Submitted.Compare(b.Submitted) })
	if n := len(s.Jobs); n > jobs {
		kept := make([]sched.Job, jobs)
		for i := range kept {
			kept[i] = s.Jobs[i*n/jobs]
		}
		s.Jobs = kept
		fmt.Fprintf(w, "selected %d of %d jobs, evenly spaced\n", jobs, n)
	}
}

// span returns the time from the start of the trace until the latest completion of any job with unlimited capacity.
func span(s *sim.Scenario) time.Duration { return s.LastEnd().Sub(s.Start) }
