package placement

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// DotProduct is the where "ecsched-dp": cost = −Σ a·d/R², with R the largest capacity of any candidate.
func DotProduct(c *Costing, n *sched.Node) (float64, bool) {
	if !c.hasLargest {
		c.largest, c.hasLargest = largest(c.Snapshot.Nodes), true
	}
	cost := 0.0
	for k, requested := range c.Job.Request.Vector() {
		if most := float64(c.largest.Vector()[k]); most > 0 {
			cost -= float64(n.Free.Vector()[k]) / most * (float64(requested) / most)
		}
	}
	return cost, true
}

// HighestLoad is the where "ecsched-ml": cost = −Σ d/a, so that nodes fill up.
func HighestLoad(c *Costing, n *sched.Node) (float64, bool) {
	cost := 0.0
	for k, requested := range c.Job.Request.Vector() {
		share, fits := shareOf(requested, n.Free.Vector()[k])
		if !fits {
			return noFit, true
		}
		cost -= share
	}
	return cost, true
}

// AuthorsStock is the where "ecsched-k8s": the baseline of the same authors, which they call Kubernetes. With f = d/a,
//
//	cost = −Σ (1 − f) − 2·Σ over pairs of resources (1 − |f − f'|)
//
// Stock's own scores are those of "least-allocated": they relate to what a node has, and not to what it has left.
func AuthorsStock(c *Costing, n *sched.Node) (float64, bool) {
	var shares [3]float64
	kinds := 2
	if c.Job.Request.GPU > 0 {
		kinds = 3
	}
	cost := 0.0
	for k := range kinds {
		share, fits := shareOf(c.Job.Request.Vector()[k], n.Free.Vector()[k])
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

// largest returns the greatest capacity of each resource.
func largest(nodes []*sched.Node) (r sched.Resources) {
	for _, n := range nodes {
		r = r.Max(n.Capacity)
	}
	return r
}
