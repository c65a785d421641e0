package sim

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/sched"
)

// use tracks the CPU usage of jobs and nodes. Amounts are integral millicores, so that adding and removing jobs has
// no rounding errors. A nil *use means that jobs use their whole requests.
type use struct {
	of []int64 // per job
	on []int64 // per node
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

// power returns the true power of node i.
func (u *use) power(i int, n *sched.Node) energy.Watts {
	if u == nil {
		return n.Power()
	}
	busy := *n
	busy.Free.MilliCPU = n.Capacity.MilliCPU - u.on[i]
	return busy.Power()
}

// busy returns the CPU usage of node i in millicores.
func (u *use) busy(i int, n *sched.Node) int64 {
	if u == nil {
		return n.Capacity.MilliCPU - n.Free.MilliCPU
	}
	return u.on[i]
}
