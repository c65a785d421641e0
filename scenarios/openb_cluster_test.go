package scenarios_test

import (
	"cmp"
	"encoding/csv"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/grid"
	"github.com/kubenergy/kubenergy/internal/sched"
	"github.com/kubenergy/kubenergy/internal/workload"
	"github.com/kubenergy/kubenergy/test/kit"
)

// device is a whole GPU, in thousandths as in the requests of pods.
const device = 1000

// openbShape contains the resource requests of a pod. Pods with the same shape are interchangeable.
type openbShape struct {
	milliCPU, memory int64 // milli-CPUs and MiB
	gpus             int64
	share            int64  // of each GPU; less than a device only if gpus is 1
	models           string // allowed GPU models, separated by |; empty for any model
}

// before compares shapes by decreasing share of a device.
func (s openbShape) before(than openbShape) int {
	return cmp.Or(cmp.Compare(than.share, s.share), cmp.Compare(than.gpus, s.gpus),
		cmp.Compare(than.milliCPU, s.milliCPU),
		cmp.Compare(than.memory, s.memory), cmp.Compare(s.models, than.models))
}

// gpu returns the total request of all devices.
func (s *openbShape) gpu() int64 { return s.gpus * s.share }

func (s *openbShape) runsOn(model string) bool {
	return s.gpus == 0 || s.models == "" || slices.Contains(strings.Split(s.models, "|"), model)
}

// openbCluster contains the nodes, and the pods in order of arrival.
type openbCluster struct {
	nodes  []sched.Node
	models []string // GPU model by node
	pods   []int    // indices of shapes
	shapes []openbShape
	gpus   int64
	sleeps bool // empty nodes are off and consume no power; otherwise they consume their idle power
}

// openb reads the trace, or skips the test if it is missing.
func openb(t *testing.T, pods string) *openbCluster {
	t.Helper()
	dir := filepath.Join(kit.Data(t, "openb/openb_node_list_all_node.csv", "openb/"+pods+".csv"), "openb")
	c := &openbCluster{}
	var err error
	if c.nodes, err = workload.Nodes(filepath.Join(dir, "openb_node_list_all_node.csv"), 0, &sched.Site{}); err != nil {
		t.Fatal(err)
	}
	for i := range c.nodes {
		c.models = append(c.models, c.nodes[i].Labels["gpu-model"])
		c.gpus += c.nodes[i].Capacity.GPU
	}
	text, err := grid.ReadFile(filepath.Join(dir, pods+".csv"))
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	type arrival struct {
		at    int64
		shape openbShape
	}
	var arrivals []arrival
	known := map[openbShape]int{}
	for _, row := range rows[1:] {
		var n [5]int64
		for k, column := range []int{1, 2, 3, 4, 8} { // cpu_milli, memory_mib, num_gpu, gpu_milli, creation_time
			if n[k], err = strconv.ParseInt(row[column], 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		s := openbShape{milliCPU: n[0], memory: n[1], gpus: n[2], share: n[3], models: row[5]}
		arrivals = append(arrivals, arrival{n[4], s})
		known[s] = 0
	}
	c.shapes = slices.SortedFunc(maps.Keys(known), openbShape.before)
	for k, s := range c.shapes {
		known[s] = k
	}
	slices.SortStableFunc(arrivals, func(a, b arrival) int { return cmp.Compare(a.at, b.at) })
	for _, a := range arrivals {
		c.pods = append(c.pods, known[a.shape])
	}
	return c
}

// until returns the cluster with the first pods that request at most the given fraction of its GPUs in total.
func (c *openbCluster) until(share float64) *openbCluster {
	cut := *c
	asked := int64(0)
	for k, s := range c.pods {
		if asked += c.shapes[s].gpu(); float64(asked) > share*float64(c.gpus*device) {
			cut.pods = c.pods[:k:k]
			break
		}
	}
	return &cut
}

// draws returns the power that a pod adds to an awake node. The power of a GPU share is proportional to the share.
func (c *openbCluster) draws(shape, node int) energy.Watts {
	s, n := &c.shapes[shape], &c.nodes[node]
	p := n.Profile
	cpu := (p.Power(float64(s.milliCPU)/float64(n.Capacity.MilliCPU)) - p.Power(0))
	return cpu + (p.GPUMax-p.GPUIdle)*energy.Watts(s.gpu())/device
}

// idles returns the idle power of a node.
func (c *openbCluster) idles(node int) energy.Watts {
	n := &c.nodes[node]
	return n.Profile.Power(0) + n.Profile.GPUIdle*energy.Watts(n.Capacity.GPU)
}

// unserved returns the penalty for a pod that is not placed. It exceeds the power of the pod on any node, so that
// omitting a pod never reduces the cost.
func (c *openbCluster) unserved(shape int) energy.Watts {
	const kilowatt = 1000
	return kilowatt + kilowatt*energy.Watts(c.shapes[shape].gpu())/device
}

// openbNode contains the free resources of a node.
type openbNode struct {
	milliCPU, memory int64
	devices          []int64 // free capacity of each device
	pods             int
}

func (c *openbCluster) empty() []openbNode {
	nodes := make([]openbNode, len(c.nodes))
	for k := range nodes {
		room := c.nodes[k].Capacity
		nodes[k] = openbNode{
			milliCPU: room.MilliCPU, memory: room.Memory >> 20, devices: slices.Repeat([]int64{device}, int(room.GPU)),
		}
	}
	return nodes
}

// takes returns the devices for a pod: the feasible device with the least free capacity, or the requested number of
// whole devices.
func (n *openbNode) takes(s *openbShape) (devices []int, fits bool) {
	if s.milliCPU > n.milliCPU || s.memory > n.memory || int(s.gpus) > len(n.devices) {
		return nil, false
	}
	if s.gpus == 1 {
		best := -1
		for k, free := range n.devices {
			if free >= s.share && (best < 0 || free < n.devices[best]) {
				best = k
			}
		}
		return []int{best}, best >= 0
	}
	for k, free := range n.devices {
		if int64(len(devices)) < s.gpus && free >= s.share {
			devices = append(devices, k)
		}
	}
	return devices, int64(len(devices)) == s.gpus
}

func (n *openbNode) put(s *openbShape, devices []int) {
	n.milliCPU -= s.milliCPU
	n.memory -= s.memory
	n.pods++
	for _, k := range devices {
		n.devices[k] -= s.share
	}
}

// openbPlacement contains the node and the devices of each pod.
type openbPlacement struct {
	node    []int // by pod; -1 if the pod is not placed
	devices [][]int
}

// openbResult contains the metrics of a placement.
type openbResult struct {
	placed      int
	watts       energy.Watts // additional power compared to empty nodes
	unserved    energy.Watts // penalty for pods that are not placed
	unallocated float64      // in GPUs
	awake       int          // number of nodes with pods
}

func (r *openbResult) cost() energy.Watts { return r.watts + r.unserved }

// verify checks a placement independently, starting with empty nodes, and returns its metrics.
func (c *openbCluster) verify(p *openbPlacement) (r openbResult, err error) {
	nodes := c.empty()
	allocated := int64(0)
	for i, shape := range c.pods {
		s, k := &c.shapes[shape], p.node[i]
		if k < 0 {
			r.unserved += c.unserved(shape)
			continue
		}
		n := &nodes[k]
		if !s.runsOn(c.models[k]) || int64(len(p.devices[i])) != s.gpus {
			return r, fmt.Errorf("pod %d on %s with devices %v requests %+v", i, c.nodes[k].Name, p.devices[i], *s)
		}
		if n.milliCPU -= s.milliCPU; n.milliCPU < 0 {
			return r, fmt.Errorf("pod %d exceeds the CPU of %s", i, c.nodes[k].Name)
		}
		if n.memory -= s.memory; n.memory < 0 {
			return r, fmt.Errorf("pod %d exceeds the memory of %s", i, c.nodes[k].Name)
		}
		for at, g := range p.devices[i] {
			if n.devices[g] -= s.share; n.devices[g] < 0 || slices.Contains(p.devices[i][:at], g) {
				return r, fmt.Errorf("pod %d exceeds device %d of %s", i, g, c.nodes[k].Name)
			}
		}
		if n.pods++; n.pods == 1 && c.sleeps {
			r.watts += c.idles(k)
		}
		r.watts += c.draws(shape, k)
		r.placed++
		allocated += s.gpu()
	}
	for k := range nodes {
		if nodes[k].pods > 0 {
			r.awake++
		}
	}
	r.unallocated = float64(c.gpus*device-allocated) / device
	return r, nil
}
