package sim

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// use is how much of their CPU jobs keep busy, and how much of each node that is. Amounts are whole thousandths of a
// core, so that what comes and goes leaves nothing behind. A nil *use is of jobs that keep all busy that they
// request.
type use struct {
	of []int64 // by job
	on []int64 // by node
}

func newUse(s *Scenario) *use {
	if s.Use == nil {
		return nil
	}
	u := &use{of: make([]int64, len(s.Jobs)), on: make([]int64, len(s.Nodes))}
	for i, share := range s.Use {
		u.of[i] = int64(math.Round(share * float64(s.Jobs[i].Request.MilliCPU)))
	}
	return u
}

func (u *use) begin(i, job int) {
	if u != nil {
		u.on[i] += u.of[job]
	}
}

func (u *use) end(i, job int) {
	if u != nil {
		u.on[i] -= u.of[job]
	}
}

// power returns what node i really draws.
func (u *use) power(i int, n *sched.Node) energy.Watts {
	if u == nil {
		return n.Power()
	}
	busy := *n
	busy.Free.MilliCPU = n.Capacity.MilliCPU - u.on[i]
	return busy.Power()
}

// busy returns how much CPU is busy on node i.
func (u *use) busy(i int, n *sched.Node) int64 {
	if u == nil {
		return n.Capacity.MilliCPU - n.Free.MilliCPU
	}
	return u.on[i]
}
