package placement

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// DotProduct implements the placement "ecsched-dp": cost = −Σ a·d/R², where R is the maximum capacity of all
// candidates, a the free amount and d the request.
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

// HighestLoad implements the placement "ecsched-ml": cost = −Σ d/a, which fills up nodes.
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

// AuthorsStock implements the placement "ecsched-k8s", the baseline that the authors of ECSched call Kubernetes.
// With f = d/a,
//
//	cost = −Σ (1 − f) − 2·Σ over pairs of resources (1 − |f − f'|)
//
// The scores of the default scheduler are available as "least-allocated". They are relative to the capacity of the
// node instead of its free resources.
func AuthorsStock(c *Costing, n *sched.Node) (float64, bool) {
	var shares []float64
	cost := 0.0
	for k, requested := range c.Job.Request.Vector() {
		if k > 1 && requested <= 0 {
			continue // GPUs only count if they are requested
		}
		share, fits := shareOf(requested, n.Free.Vector()[k])
		if !fits {
			return noFit, true
		}
		cost -= 1 - share
		for _, other := range shares {
			cost -= 2 * (1 - math.Abs(share-other))
		}
		shares = append(shares, share)
	}
	return cost, true
}

// noFit exceeds the cost of every node with sufficient capacity. The formulas are not defined for other nodes.
const noFit = 1

// shareOf returns d/a, and whether the request fits.
func shareOf(requested, free int64) (share float64, fits bool) {
	switch {
	case requested <= 0:
		return 0, true
	case requested > free:
		return 0, false
	}
	return float64(requested) / float64(free), true
}

// largest returns the maximum capacity of each resource.
func largest(nodes []*sched.Node) (r sched.Resources) {
	for _, n := range nodes {
		r = r.Max(n.Capacity)
	}
	return r
}
