package scenarios_test

// fragmentation is fragmentation gradient descent (Weng et al., "Beware of Fragmentation", ATC 2023), from its
// published description. What is free of the GPUs of a node is a fragment for a shape if the shape does not fit
// there, or asks for no GPU: all of it; else what is free of those devices that are too small for it. A node's
// fragmentation is the mean of that over the shapes of the whole trace, by how often they come. A pod goes to the
// node, and there to the devices, where it grows least.
type fragmentation struct {
	c      *openbCluster
	weight []float64 // by shape
	// fragments and growths are remembered until a node has changed: by node, and by shape and node.
	fragments []fragments
	growths   [][]growth
}

type fragments struct {
	sum   float64
	pods  int // of the node, when that was so
	known bool
}

type growth struct {
	by      float64
	devices []int
	pods    int
	known   bool
}

// descent is the cost of that. The shapes of all are those of the whole trace.
func (c *openbCluster) descent(all *openbCluster) openbCost {
	f := &fragmentation{
		c: c, weight: make([]float64, len(c.shapes)), fragments: make([]fragments, len(c.nodes)),
		growths: make([][]growth, len(c.shapes)),
	}
	for _, shape := range all.pods {
		f.weight[shape] += 1 / float64(len(all.pods))
	}
	return func(shape, node int, n *openbNode) (float64, []int) {
		if f.growths[shape] == nil {
			f.growths[shape] = make([]growth, len(c.nodes))
		}
		g := &f.growths[shape][node]
		if !g.known || g.pods != n.pods {
			*g = f.growth(shape, node, n)
		}
		return g.by, g.devices
	}
}

// growth tries all ways to give a pod devices that make a difference.
func (f *fragmentation) growth(shape, node int, n *openbNode) (g growth) {
	if before := &f.fragments[node]; !before.known || before.pods != n.pods {
		*before = fragments{f.of(node, n), n.pods, true}
	}
	s := &f.c.shapes[shape]
	g.pods, g.known = n.pods, true
	try := func(devices []int) {
		after := openbNode{milliCPU: n.milliCPU, memory: n.memory, devices: append([]int64(nil), n.devices...)}
		after.put(s, devices)
		if by := f.of(node, &after) - f.fragments[node].sum; g.devices == nil || by < g.by {
			g.by, g.devices = by, devices
		}
	}
	if s.gpus != 1 {
		devices, _ := n.takes(s) // whole ones are alike
		try(devices)
		return g
	}
	for k, free := range n.devices {
		if free < s.share {
			continue
		}
		first := true
		for _, other := range n.devices[:k] {
			first = first && other != free
		}
		if first {
			try([]int{k})
		}
	}
	return g
}

// of is the fragmentation of a node, in devices.
func (f *fragmentation) of(node int, n *openbNode) (sum float64) {
	total := int64(0)
	for _, free := range n.devices {
		total += free
	}
	if total == 0 {
		return 0
	}
	for shape, weight := range f.weight {
		s := &f.c.shapes[shape]
		fragment := total
		if s.gpus > 0 && s.milliCPU <= n.milliCPU && s.memory <= n.memory && s.runsOn(f.c.models[node]) {
			enough, small := int64(0), int64(0)
			for _, free := range n.devices {
				if free >= s.share {
					enough++
				} else {
					small += free
				}
			}
			if enough >= s.gpus {
				fragment = small
			}
		}
		sum += weight * float64(fragment) / device
	}
	return sum
}
