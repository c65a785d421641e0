package batch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/kubenergy/kubenergy/energy"
)

// A Total is energy of several nodes, each joule counted once. What is more than can be counted stays at that.
type Total struct {
	Measured energy.Microjoules // = Shares + Idle + Platform + Unknown
	Shares   energy.Microjoules // of consumers
	Idle     energy.Microjoules
	Platform energy.Microjoules
	Unknown  energy.Microjoules
}

// Sum adds the energy of batches. What a virtual machine used is part of what its host did: its batch is left out if
// one of the host that covers some of the same time, by their wall clocks, is summed too, and counts otherwise.
func Sum(batches []*Batch) Total {
	x := indexed(batches)
	var t Total
	for _, b := range batches {
		if b.Parent != nil && x.within(b) {
			continue
		}
		t.Measured = plus(t.Measured, b.Measured)
		t.Idle = plus(t.Idle, b.Idle)
		t.Platform = plus(t.Platform, b.Platform)
		t.Unknown = plus(t.Unknown, b.Unknown)
		for i := range b.Shares {
			t.Shares = plus(plus(t.Shares, b.Shares[i].Dynamic), b.Shares[i].Idle)
		}
	}
	return t
}

func plus(a, b energy.Microjoules) energy.Microjoules {
	if b > 0 && a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// An index holds the batches of each node by their start.
type index map[string]*timeline

type timeline struct {
	batches []*Batch
	longest time.Duration // of them
}

func indexed(batches []*Batch) index {
	x := index{}
	for _, b := range batches {
		l := x[b.Stream.Node]
		if l == nil {
			l = new(timeline)
			x[b.Stream.Node] = l
		}
		l.batches = append(l.batches, b)
		l.longest = max(l.longest, b.End.Sub(b.Start))
	}
	for _, l := range x {
		slices.SortStableFunc(l.batches, func(a, b *Batch) int {
			return cmp.Or(a.Start.Compare(b.Start), a.End.Compare(b.End))
		})
	}
	return x
}

// overlapping calls each batch of a node that covers some of the time of b, and reports if there is one. Intervals that
// touch do not overlap.
func (x index) overlapping(node string, b *Batch, each func(*Batch)) bool {
	l := x[node]
	if l == nil {
		return false
	}
	found := false
	i, _ := slices.BinarySearchFunc(l.batches, b.End, func(other *Batch, end time.Time) int {
		return other.Start.Compare(end)
	})
	for i--; i >= 0 && b.Start.Sub(l.batches[i].Start) < l.longest; i-- {
		if other := l.batches[i]; other.End.After(b.Start) && other.End.After(other.Start) {
			found = true
			each(other)
		}
	}
	return found
}

// within reports whether the machine that b's node runs on is summed in that time. Machines that claim to run on each
// other are not: too much energy is seen and looked into, energy that is nowhere is not.
func (x index) within(b *Batch) bool {
	var above []string
	seen := map[string]bool{}
	climb := func(h *Batch) {
		if h.Parent != nil && !seen[h.Parent.Host] {
			seen[h.Parent.Host] = true
			above = append(above, h.Parent.Host)
		}
	}
	if !x.overlapping(b.Parent.Host, b, climb) {
		return false
	}
	for len(above) > 0 {
		node := above[len(above)-1]
		above = above[:len(above)-1]
		if node == b.Stream.Node {
			return false // in a circle
		}
		x.overlapping(node, b, climb)
	}
	return true
}
