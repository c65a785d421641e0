package scenarios_test

import (
	"math"
	"slices"
	"testing"

	"github.com/kubenergy/kubenergy/internal/energy"
	"github.com/kubenergy/kubenergy/internal/mincost"
	"github.com/kubenergy/kubenergy/internal/mincost/mincosttest"
)

// sizings lists functions that map the share of a device to a size, with a size of 6,000 for a whole device. They
// are dual feasible functions (Fekete and Schepers): the sizes of shares that fit on one device together never
// exceed the size of the device, so the capacity constraints hold for all placements. The second function, for
// example, rounds a share of more than half a device up to a whole device, because no other share of this kind fits
// on the device. Bounds only consider capacities and are tighter with these functions.
var sizings = []func(share int64) int64{
	func(s int64) int64 { return 6 * s },
	steps(1), steps(2), steps(3),
	large(200), large(250), large(350), large(460),
}

const wholeSize = 6 * device

// steps returns a function that rounds shares down to multiples of 1/(k+1) and maps these to multiples of 1/k.
// Exact multiples of 1/(k+1) are not changed.
func steps(k int64) func(share int64) int64 {
	return func(s int64) int64 {
		if s*(k+1)%device == 0 {
			return 6 * s
		}
		return s * (k + 1) / device * wholeSize / k
	}
}

// large returns a function that rounds a share up to a whole device if it leaves less than rest, and down to zero
// if it is less than rest.
func large(rest int64) func(share int64) int64 {
	return func(s int64) int64 {
		switch {
		case s > device-rest:
			return wholeSize
		case s < rest:
			return 0
		}
		return 6 * s
	}
}

// packing returns the batch as a packing problem with item classes and bin groups, in milliwatts. Nodes with the
// same hardware are in one group.
func (c *openbCluster) packing() (p mincost.Packing, members [][]int) {
	type hardware struct {
		name           string
		cpu, mem, gpus int64
	}
	groups := map[hardware]int{}
	for k := range c.nodes {
		n := &c.nodes[k]
		key := hardware{n.Profile.Name, n.Capacity.MilliCPU, n.Capacity.Memory, n.Capacity.GPU}
		g, ok := groups[key]
		if !ok {
			g = len(members)
			groups[key] = g
			members = append(members, nil)
			bins := mincost.Bins{Capacity: []int64{n.Capacity.MilliCPU, n.Capacity.Memory >> 20}}
			for range sizings {
				bins.Capacity = append(bins.Capacity, n.Capacity.GPU*wholeSize)
			}
			if c.sleeps {
				bins.Opening = milliwatts(c.idles(k))
			}
			p.Bins = append(p.Bins, bins)
		}
		p.Bins[g].Count++
		members[g] = append(members[g], k)
	}
	for shape := range c.shapes {
		s := &c.shapes[shape]
		items := mincost.Items{Demand: []int64{s.milliCPU, s.memory}, LeftOut: milliwatts(c.unserved(shape))}
		for _, size := range sizings {
			items.Demand = append(items.Demand, s.gpus*size(s.share))
		}
		p.Items = append(p.Items, items)
	}
	for _, shape := range c.pods {
		p.Items[shape].Count++
	}
	p.Cost = mincost.NewMatrix(len(p.Items), len(p.Bins))
	for shape := range c.shapes {
		for g, nodes := range members {
			if c.shapes[shape].runsOn(c.models[nodes[0]]) {
				p.Cost.Set(shape, g, milliwatts(c.draws(shape, nodes[0])))
			}
		}
	}
	found := make([]int, 0, 64)
	p.Room = func(group int, held []mincost.Held) bool {
		var fits bool
		found, fits = c.onDevices(held, int(c.nodes[members[group][0]].Capacity.GPU), found[:0])
		return fits
	}
	return p, members
}

func milliwatts(w energy.Watts) int64 { return int64(math.Round(1000 * float64(w))) }

// onDevices assigns devices to all pods on a node. It places the largest shares first, each on the feasible device
// with the least free capacity, and backtracks if this fails. It returns the device indices in the order of the
// pods.
func (c *openbCluster) onDevices(held []mincost.Held, devices int, given []int) ([]int, bool) {
	var free [8]int64
	for k := range devices {
		free[k] = device
	}
	var shares []int64 // of one device each, in decreasing order like the shapes
	whole := 0
	for _, h := range held {
		s := &c.shapes[h.Class]
		for range h.Count * s.gpus {
			if s.share == device {
				if whole == devices {
					return nil, false
				}
				given = append(given, whole)
				free[whole] = 0
				whole++
			} else {
				shares = append(shares, s.share)
			}
		}
	}
	tries := 1000
	return fitShares(shares, free[:devices], given, &tries)
}

// fitShares assigns a device to each share and tries the device with the least free capacity first. It gives up
// when tries is exhausted.
func fitShares(shares, free []int64, given []int, tries *int) ([]int, bool) {
	if len(shares) == 0 {
		return given, true
	}
	if *tries--; *tries < 0 {
		return nil, false
	}
	for last := int64(-1); ; {
		best := -1
		for k, f := range free {
			if f >= shares[0] && f > last && (best < 0 || f < free[best]) {
				best = k
			}
		}
		if best < 0 {
			return nil, false
		}
		last = free[best]
		free[best] -= shares[0]
		if all, fits := fitShares(shares[1:], free, append(given, best), tries); fits {
			return all, true
		}
		free[best] = last
	}
}

// byPrices places the batch with package mincost and returns the placement and a lower bound of the cost of all
// placements.
func (c *openbCluster) byPrices(t *testing.T) (p openbPlacement, bound energy.Watts) {
	t.Helper()
	problem, members := c.packing()
	packed, err := mincost.Pack(problem, func() bool { return false })
	if err != nil {
		t.Fatal(err)
	}
	if err := mincosttest.Certify(&problem, packed); err != nil {
		t.Fatal(err)
	}
	waiting := make([][]int, len(c.shapes)) // pods by shape
	for i, shape := range c.pods {
		waiting[shape] = append(waiting[shape], i)
	}
	p = openbPlacement{node: slices.Repeat([]int{-1}, len(c.pods)), devices: make([][]int, len(c.pods))}
	bin := 0
	for _, nodes := range members {
		for _, k := range nodes {
			c.unpack(t, &p, waiting, k, packed.Bins[bin])
			bin++
		}
	}
	return p, energy.Watts(packed.Bound) / 1000
}

// unpack assigns waiting pods to the item classes on a node.
func (c *openbCluster) unpack(t *testing.T, p *openbPlacement, waiting [][]int, node int, held []mincost.Held) {
	t.Helper()
	devices, fits := c.onDevices(held, int(c.nodes[node].Capacity.GPU), nil)
	if !fits {
		t.Fatalf("%s has no capacity for %v", c.nodes[node].Name, held)
	}
	for _, h := range held {
		for range h.Count {
			i := waiting[h.Class][0]
			waiting[h.Class] = waiting[h.Class][1:]
			p.node[i], p.devices[i] = node, devices[:c.shapes[h.Class].gpus]
			devices = devices[c.shapes[h.Class].gpus:]
		}
	}
}
