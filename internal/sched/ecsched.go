package sched

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/mincost"
)

// The wheres of ECSched (Hu et al., "Concurrent container scheduling on heterogeneous clusters with multi-resource
// constraints"), as its authors coded them. Resources are CPU and memory, and GPUs for jobs that ask for some; d is
// what the job asks for, a what the node has free.

// dotProduct is the where "ecsched-dp": cost = −Σ a·d/R², with R the largest capacity of any candidate.
func dotProduct(c *costing, n *Node) (float64, bool) {
	if !c.hasLargest {
		c.largest, c.hasLargest = largest(c.snapshot.Nodes), true
	}
	cost := 0.0
	for k, requested := range c.job.Request.vector() {
		if most := float64(c.largest.vector()[k]); most > 0 {
			cost -= float64(n.Free.vector()[k]) / most * (float64(requested) / most)
		}
	}
	return cost, true
}

// highestLoad is the where "ecsched-ml": cost = −Σ d/a, so that nodes fill up.
func highestLoad(c *costing, n *Node) (float64, bool) {
	cost := 0.0
	for k, requested := range c.job.Request.vector() {
		share, fits := shareOf(requested, n.Free.vector()[k])
		if !fits {
			return noFit, true
		}
		cost -= share
	}
	return cost, true
}

// authorsStock is the where "ecsched-k8s": the baseline of the same authors, which they call Kubernetes. With f = d/a,
//
//	cost = −Σ (1 − f) − 2·Σ over pairs of resources (1 − |f − f'|)
//
// Stock's own scores are those of "least-allocated": they relate to what a node has, and not to what it has left.
func authorsStock(c *costing, n *Node) (float64, bool) {
	var shares [3]float64
	kinds := 2
	if c.job.Request.GPU > 0 {
		kinds = 3
	}
	cost := 0.0
	for k := range kinds {
		share, fits := shareOf(c.job.Request.vector()[k], n.Free.vector()[k])
		if !fits {
			return noFit, true
		}
		shares[k] = share
		cost -= 1 - share
		for _, other := range shares[:k] {
			cost -= 2 * (1 - math.Abs(share-other))
		}
	}
	return cost, true
}

// noFit is above the cost of any node that has room: the formulas mean nothing where there is none.
const noFit = 1

// shareOf returns d/a.
func shareOf(requested, free int64) (share float64, fits bool) {
	switch {
	case requested <= 0:
		return 0, true
	case requested > free:
		return 0, false
	}
	return float64(requested) / float64(free), true
}

func (r Resources) vector() [3]int64 { return [3]int64{r.MilliCPU, r.Memory, r.GPU} }

// largest returns the greatest capacity of each resource.
func largest(nodes []*Node) (r Resources) {
	for _, n := range nodes {
		r = r.Max(n.Capacity)
	}
	return r
}

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
