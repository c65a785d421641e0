package scenarios_test

import (
	"math"
	"testing"

	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/sched/strategy"
)

// oneByOne places pods in order of arrival. Each pod is placed on the feasible node with the lowest cost at that
// time, and on the first node in case of a tie. A pod that does not fit on any node is not retried. Unless the cost
// function selects devices, the devices with the least free capacity are used.
func (c *openbCluster) oneByOne(cost openbCost) openbPlacement {
	p := openbPlacement{node: make([]int, len(c.pods)), devices: make([][]int, len(c.pods))}
	nodes := c.empty()
	for i, shape := range c.pods {
		s := &c.shapes[shape]
		best, least := -1, math.Inf(1)
		var given []int
		for k := range nodes {
			if !s.runsOn(c.models[k]) {
				continue
			}
			devices, fits := nodes[k].takes(s)
			if !fits {
				continue
			}
			here, chosen := cost(shape, k, &nodes[k])
			if here < least {
				best, least, given = k, here, devices
				if chosen != nil {
					given = chosen
				}
			}
		}
		p.node[i], p.devices[i] = best, given
		if best >= 0 {
			nodes[best].put(s, given)
		}
	}
	return p
}

// openbCost returns the cost of placing a pod of a shape on a node and the preferred devices, or nil devices if
// there is no preference.
type openbCost func(shape, node int, n *openbNode) (cost float64, devices []int)

// stock returns the cost function of the strategy "least-allocated", a model of the scoring in kube-scheduler. It
// ignores GPUs.
func (c *openbCluster) stock(t *testing.T) openbCost {
	t.Helper()
	strategy, err := strategy.New("least-allocated")
	if err != nil {
		t.Fatal(err)
	}
	here, s := sched.Node{}, sched.Snapshot{Nodes: make([]*sched.Node, 1)}
	s.Nodes[0] = &here
	costs := make([]float64, 0, 1)
	return func(shape, node int, n *openbNode) (float64, []int) {
		want := &c.shapes[shape]
		here = c.nodes[node]
		here.Free.MilliCPU, here.Free.Memory = n.milliCPU, n.memory<<20
		job := sched.Job{Request: sched.Resources{MilliCPU: want.milliCPU, Memory: want.memory << 20}}
		costs, _ = strategy.Costs(&s, &job, costs)
		return costs[0], nil
	}
}

// dotProduct returns a cost function that aligns the request of a pod with the free resources of a node: −Σ
// free·requested/R², with the capacity R of the largest node.
func (c *openbCluster) dotProduct() openbCost {
	var largest sched.Resources
	for k := range c.nodes {
		room := c.nodes[k].Capacity
		largest = sched.Resources{
			MilliCPU: max(largest.MilliCPU, room.MilliCPU), Memory: max(largest.Memory, room.Memory>>20),
			GPU: max(largest.GPU, room.GPU*device),
		}
	}
	product := func(free, requested, most int64) float64 {
		return float64(free) / float64(most) * float64(requested) / float64(most)
	}
	return func(shape, _ int, n *openbNode) (float64, []int) {
		s, gpu := &c.shapes[shape], int64(0)
		for _, free := range n.devices {
			gpu += free
		}
		return -product(n.milliCPU, s.milliCPU, largest.MilliCPU) - product(n.memory, s.memory, largest.Memory) -
			product(gpu, s.gpu(), largest.GPU), nil
	}
}

// energy returns a cost function for the additional power of a pod on a node.
func (c *openbCluster) energy() openbCost {
	return func(shape, node int, n *openbNode) (float64, []int) {
		watts := c.draws(shape, node)
		if n.pods == 0 && c.sleeps {
			watts += c.idles(node)
		}
		return float64(watts), nil
	}
}
