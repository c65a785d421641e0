package placement

import (
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// LeastAllocated is the where "least-allocated": a model of how stock kube-scheduler 1.36 scores, its plugins
// NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation at their default weights over CPU and memory,
// in its own integer arithmetic. Stock's other scorers are left out; they say the same of all nodes unless pods ask
// for affinity, spreading or images. Stock breaks ties at random, and so does this with a seed.
func LeastAllocated(c *Costing, n *sched.Node) (float64, bool) {
	used := n.Capacity.Sub(n.Free)
	then := used.Add(stockRequest(c.Job.Request))
	return stockCost(c, n, used, leastRequestedScore(then.MilliCPU, n.Capacity.MilliCPU)+
		leastRequestedScore(then.Memory, n.Capacity.Memory)), true
}

// stockCost takes the scores of CPU and memory together.
func stockCost(c *Costing, n *sched.Node, used sched.Resources, scores int64) float64 {
	cost := float64(-(scores/2 + balancedScore(used, c.Job.Request, n.Capacity)))
	if seed := c.Snapshot.Policy.Seed; seed != 0 {
		cost += tieBreak(seed, c.Job.ID, n.Name)
	}
	return cost
}

// Stock counts a container without a request as this much when it scores, so that such pods do not pile up.
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 << 20
	maxNodeScore    = 100
)

func stockRequest(r sched.Resources) sched.Resources {
	if r.MilliCPU == 0 {
		r.MilliCPU = defaultMilliCPU
	}
	if r.Memory == 0 {
		r.Memory = defaultMemory
	}
	return r
}

func leastRequestedScore(requested, capacity int64) int64 {
	if capacity == 0 || requested > capacity {
		return 0
	}
	return (capacity - requested) * maxNodeScore / capacity
}

// balancedScore rewards a placement that brings the CPU and memory shares of the node closer together.
func balancedScore(used, request, capacity sched.Resources) int64 {
	if request.MilliCPU == 0 && request.Memory == 0 {
		return 0 // stock skips pods without requests
	}
	with := balance(used.Add(request), capacity)
	without := balance(used, capacity)
	return maxNodeScore/2 + (maxNodeScore/2+with-without)/2
}

func balance(used, capacity sched.Resources) int64 {
	if capacity.MilliCPU == 0 || capacity.Memory == 0 {
		return maxNodeScore
	}
	cpu := min(1, float64(used.MilliCPU)/float64(capacity.MilliCPU))
	memory := min(1, float64(used.Memory)/float64(capacity.Memory))
	return int64((1 - math.Abs(cpu-memory)/2) * maxNodeScore)
}

// tieBreak returns a number in [0, 1), less than the distance of two scores, from FNV-1a over what identifies the
// choice.
func tieBreak(seed uint64, job, node string) float64 {
	const prime = 1099511628211
	h := seed ^ 14695981039346656037
	for _, text := range [2]string{job, node} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * prime
		}
		h *= prime
	}
	h ^= h >> 32 // FNV's high bits are its weak ones for short texts
	h *= 0x9e3779b97f4a7c15
	return float64(h>>11) / (1 << 53)
}
