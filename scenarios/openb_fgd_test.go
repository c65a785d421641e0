package scenarios_test

// fragmentation implements fragmentation gradient descent (Weng et al., "Beware of Fragmentation", ATC 2023)
// according to its published description. If a shape does not fit on a node or requests no GPU, all free GPU
// capacity of the node is a fragment for this shape. Otherwise, only the free capacity of devices that are too
// small for the shape is a fragment. The fragmentation of a node is the mean over the shapes of the entire trace,
// weighted by their frequency. A pod is placed on the node and the devices with the lowest increase.
type fragmentation struct {
	c      *openbCluster
	weight []float64 // by shape
	// Caches by node, and by shape and node. Entries are valid until the node changes.
	fragments []fragments
	growths   [][]growth
}

type fragments struct {
	sum   float64
	pods  int // number of pods on the node when the entry was computed
	known bool
}

type growth struct {
	by      float64
	devices []int
	pods    int
	known   bool
}

// descent returns the cost function of fragmentation gradient descent. The weights of shapes are computed from all.
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

// growth returns the minimum increase over all distinct selections of devices.
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
		devices, _ := n.takes(s) // whole devices are interchangeable
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

// of returns the fragmentation of a node, in devices.
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
