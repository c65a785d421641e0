package strategy

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/mincost"
)

// The placements of ECSched (Hu et al., "Concurrent container scheduling on heterogeneous clusters with
// multi-resource constraints"), as implemented by its authors. Resources are CPU and memory, and also GPUs for jobs
// that request them. In the formulas, d is the request of the job and a the free amount of the node.

// Limits from the implementation of the authors. A flow contains at most the flowJobs jobs with the longest waiting
// time, whether or not they fit. At most flowRounds flows are solved before the rest of the queue has to wait.
const (
	flowJobs   = 100
	flowRounds = 50
)

// matchInRounds places a queue like ECSched, by a min-cost flow from source to job, node and sink with an edge for
// each node that a job fits on. Each node has a capacity of one job per round. The flow places as many jobs as
// possible at the lowest cost. Rounds are repeated until one places no job. The resources of a node are not part of
// the flow, therefore a round assigns it only one job and the next round uses the updated resources.
func matchInRounds(b *batch) {
	b.group()
	for range flowRounds {
		jobs := b.fitting(b.open[:min(len(b.open), flowJobs)])
		if len(jobs) == 0 {
			return
		}
		if b.stopped() {
			b.placeInOrder()
			return
		}
		round := mincost.Assign(b.flow(jobs)) // costs are clamped, and the number of nodes is limited
		for row, col := range round.Cols {
			if col >= 0 {
				b.place(jobs[row], col)
			}
		}
		b.close()
	}
}

// flow returns the cost matrix of a round.
func (b *batch) flow(jobs []int) mincost.Matrix {
	rows := map[int][]float64{}
	var all []float64
	for _, i := range jobs {
		if kind := b.kindOf[i]; rows[kind] == nil {
			rows[kind] = b.costs(kind)
			all = append(all, rows[kind]...)
		}
	}
	scale := scaleOf(all)
	flow := mincost.NewMatrix(len(jobs), len(b.nodes))
	for row, i := range jobs {
		for col, cost := range rows[b.kindOf[i]] {
			if !math.IsNaN(cost) {
				flow.Set(row, col, scale.integer(cost))
			}
		}
	}
	return flow
}
