package batch

import "github.com/kubenergy/kubenergy/energy"

// A Total is energy of several nodes, each joule counted once.
type Total struct {
	Measured energy.Microjoules // = Shares + Idle + Platform + Unknown
	Shares   energy.Microjoules // of consumers
	Idle     energy.Microjoules
	Platform energy.Microjoules
	Unknown  energy.Microjoules
}

// Sum adds the energy of batches. What a virtual machine used is part of what its host did: its batches are left out if
// the host is among the nodes that are summed, and count otherwise.
func Sum(batches []*Batch) Total {
	nodes := make(map[string]*Parent, len(batches))
	for _, b := range batches {
		if _, known := nodes[b.Stream.Node]; !known || b.Parent != nil {
			nodes[b.Stream.Node] = b.Parent
		}
	}
	var t Total
	for _, b := range batches {
		if b.Parent != nil && !isRoot(b.Stream.Node, b.Parent.Host, nodes) {
			continue
		}
		t.Measured += b.Measured
		t.Idle += b.Idle
		t.Platform += b.Platform
		t.Unknown += b.Unknown
		for i := range b.Shares {
			t.Shares += b.Shares[i].Dynamic + b.Shares[i].Idle
		}
	}
	return t
}

// isRoot reports whether no machine above a node is summed. Machines that claim to run on each other are all roots: too
// much energy is seen and looked into, energy that is nowhere is not.
func isRoot(node, host string, nodes map[string]*Parent) bool {
	if _, summed := nodes[host]; !summed {
		return true
	}
	for range nodes {
		if host == node {
			return true
		}
		above := nodes[host]
		if above == nil {
			return false
		}
		if _, summed := nodes[above.Host]; !summed {
			return false
		}
		host = above.Host
	}
	return false // below a circle, whose machines are roots
}
