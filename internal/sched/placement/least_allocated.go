package placement

import (
	"cmp"
	"math"

	"github.com/kubenergy/kubenergy/internal/sched"
)

// LeastAllocated implements the placement "least-allocated", a model of the scoring of kube-scheduler 1.36: the
// plugins NodeResourcesFit (LeastAllocated) and NodeResourcesBalancedAllocation with their default weights for CPU
// and memory, in the same integer arithmetic. Other score plugins are not modeled, because they return the same
// score for all nodes unless pods use affinity, topology spread constraints or images. Ties are broken at random
// like in kube-scheduler if a seed is set.
func LeastAllocated(c *Costing, n *sched.Node) (float64, bool) {
	used := n.Capacity.Sub(n.Free)
	then := used.Add(stockRequest(c.Job.Request))
	return stockCost(c, n, used, leastRequestedScore(then.MilliCPU, n.Capacity.MilliCPU)+
		leastRequestedScore(then.Memory, n.Capacity.Memory)), true
}

// stockCost combines the scores of CPU and memory.
func stockCost(c *Costing, n *sched.Node, used sched.Resources, scores int64) float64 {
	cost := float64(-(scores/2 + balancedScore(used, c.Job.Request, n.Capacity)))
	if seed := c.Snapshot.Policy.Seed; seed != 0 {
		cost += tieBreak(seed, c.Job.ID, n.Name)
	}
	return cost
}

// Requests that kube-scheduler assumes for containers without requests when it computes scores, so that such pods
// are distributed.
const (
	defaultMilliCPU = 100
	defaultMemory   = 200 << 20
	maxNodeScore    = 100
)

func stockRequest(r sched.Resources) sched.Resources {
	r.MilliCPU, r.Memory = cmp.Or(r.MilliCPU, defaultMilliCPU), cmp.Or(r.Memory, defaultMemory)
	return r
}

func leastRequestedScore(requested, capacity int64) int64 {
	if capacity == 0 || requested > capacity {
		return 0
	}
	return (capacity - requested) * maxNodeScore / capacity
}

// balancedScore returns a higher score for a placement that brings the CPU and memory utilisation of the node
// closer together.
func balancedScore(used, request, capacity sched.Resources) int64 {
	if request.MilliCPU == 0 && request.Memory == 0 {
		return 0 // kube-scheduler skips pods without requests
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

// tieBreak returns a number in [0, 1), which is less than the difference between two scores. It is a variant of
// FNV-1a over the seed and the names of job and node.
func tieBreak(seed uint64, job, node string) float64 {
	const prime = 1099511628211
	h := seed ^ 14695981039346656037
	for _, text := range [2]string{job, node} {
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * prime
		}
		h *= prime
	}
	h ^= h >> 32 // the high bits of FNV are weak for short inputs
	h *= 0x9e3779b97f4a7c15
	return float64(h>>11) / (1 << 53)
}
