package strategy

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/mincost"
)

// The wheres of ECSched (Hu et al., "Concurrent container scheduling on heterogeneous clusters with multi-resource
// constraints"), as its authors coded them. Resources are CPU and memory, and GPUs for jobs that ask for some; d is
// what the job asks for, a what the node has free.

// The authors' limits: so many jobs are in a flow, those that have waited longest whether they fit or not, and so many
// flows are solved before the rest of the queue has to wait.
const (
	flowJobs   = 100
	flowRounds = 50
)

// matchInRounds places a queue as ECSched does: source → job → node → sink, an edge where the job fits, and room for
// one job of a round on each node; most jobs, and then the least cost. Rounds are solved until one places nothing. A
// node's resources are no part of the flow, which is why a round gives it one job: the next round sees what is left.
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
		round, err := mincost.Assign(b.flow(jobs))
		if err != nil {
			panic(err) // costs are clamped, and no cluster has so many nodes
		}
		for row, col := range round.Cols {
			if col >= 0 {
				b.place(jobs[row], col)
			}
		}
		b.close()
	}
}

// flow returns the costs of a round.
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
