package sim

import (
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// ahead learns which jobs arrive, for strategies that leave room for the next ones.
type ahead struct {
	arrivals sched.Arrivals
	ends     ends
}

// newAhead returns nil if the strategy does not leave room for other jobs.
func newAhead(strategy strategy.Strategy) *ahead {
	if leaves, ok := strategy.(interface{ LeavesRoom() bool }); !ok || !leaves.LeavesRoom() {
		return nil
	}
	return &ahead{ends: ends{}}
}

func (a *ahead) add(s *Scenario, job int32) {
	if a != nil {
		a.arrivals.Add(s.Jobs[job].Submitted, s.Jobs[job].Submitted, &s.Jobs[job])
	}
}

func (a *ahead) waits(now time.Time, j *sched.Job) {
	if a != nil {
		a.arrivals.Waits(now, j.ID, j)
	}
}

// leaves records that a job does not wait for room.
func (a *ahead) leaves(j *sched.Job) {
	if a != nil {
		a.arrivals.Left(j.ID)
	}
}

// look returns the jobs to leave room for when j is placed.
func (a *ahead) look(now time.Time, j *sched.Job, nodes []sched.Node) []sched.Demand {
	if a == nil {
		return nil
	}
	all := func(yield func(*sched.Node) bool) {
		for i := range nodes {
			if !yield(&nodes[i]) {
				return
			}
		}
	}
	return a.arrivals.Ahead(now, j, all, func(n *sched.Node) []sched.End { return n.Ends })
}

func (a *ahead) begins(n *sched.Node, job int, j *sched.Job, end time.Time) {
	if a != nil {
		a.ends.add(n, job, j, end)
	}
}

func (a *ahead) left(n *sched.Node, job int) {
	if a != nil {
		a.ends.drop(n, job)
	}
}

// ends contains the expected ends of running jobs. Those of a node are sorted by time.
type ends map[int]sched.End

func (e ends) add(n *sched.Node, job int, j *sched.Job, end time.Time) {
	e[job] = sched.End{At: end, Request: j.Request}
	at, _ := slices.BinarySearchFunc(n.Ends, end, func(e sched.End, t time.Time) int { return e.At.Compare(t) })
	n.Ends = slices.Insert(n.Ends, at, e[job])
}

func (e ends) drop(n *sched.Node, job int) {
	if k := slices.Index(n.Ends, e[job]); k >= 0 {
		n.Ends = slices.Delete(n.Ends, k, k+1)
	}
	delete(e, job)
}
