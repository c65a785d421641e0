package mincost

import (
	"cmp"
	"slices"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// bins is a placement under construction.
type bins struct {
	p     *Packing
	dims  int
	first []int    // by group: index of its first bin; one more at the end
	group []int    // by bin
	free  []int64  // by bin and resource
	held  [][]Held // by bin, sorted by class
	left  []int64  // by class: items without a bin
	cost  int64
	trial []Held
}

func newBins(p *Packing) *bins {
	b := &bins{p: p, left: make([]int64, len(p.Items)), first: make([]int, len(p.Bins)+1)}
	if len(p.Items) > 0 {
		b.dims = len(p.Items[0].Demand)
	}
	for j := range p.Bins {
		for range p.Bins[j].Count {
			b.group = append(b.group, j)
			b.free = append(b.free, p.Bins[j].Capacity...)
		}
		b.first[j+1] = len(b.group)
	}
	b.held = make([][]Held, len(b.group))
	for i := range p.Items {
		b.left[i] = p.Items[i].Count
		b.cost += p.Items[i].Count * p.Items[i].LeftOut
	}
	return b
}

// price returns the cost of an item of a class in a group.
func (b *bins) price(class, group int) int64 { return b.p.Cost.Cost[class*b.p.Cost.Cols+group] }

// fits reports whether a bin has capacity for one more item of a class.
func (b *bins) fits(bin, class int) bool {
	if b.price(class, b.group[bin]) == Missing {
		return false
	}
	free := b.free[bin*b.dims : (bin+1)*b.dims]
	for k, d := range b.p.Items[class].Demand {
		if d > free[k] {
			return false
		}
	}
	if b.p.Room == nil {
		return true
	}
	b.trial = append(b.trial[:0], b.held[bin]...)
	b.trial = change(b.trial, class, 1)
	return b.p.Room(b.group[bin], b.trial)
}

// change adds the given number of items of a class.
func change(held []Held, class int, count int64) []Held {
	at, found := slices.BinarySearchFunc(held, class, func(h Held, class int) int {
		return cmp.Compare(h.Class, class)
	})
	if !found {
		return slices.Insert(held, at, Held{class, count})
	}
	if held[at].Count += count; held[at].Count == 0 {
		return slices.Delete(held, at, at+1)
	}
	return held
}

// added returns the cost of adding an item of a class to a bin, and removed the saving of removing one.
func (b *bins) added(bin, class int) int64 {
	cost := b.price(class, b.group[bin])
	if len(b.held[bin]) == 0 {
		cost += b.p.Bins[b.group[bin]].Opening
	}
	return cost
}

func (b *bins) removed(bin, class int) int64 {
	cost := b.price(class, b.group[bin])
	if held := b.held[bin]; len(held) == 1 && held[0].Count == 1 {
		cost += b.p.Bins[b.group[bin]].Opening
	}
	return cost
}

// put places a remaining item in a bin with sufficient capacity.
func (b *bins) put(bin, class int) {
	b.cost += b.added(bin, class) - b.p.Items[class].LeftOut
	b.left[class]--
	b.occupy(bin, class, 1)
}

// pull removes an item from a bin and adds it to the remaining items.
func (b *bins) pull(bin, class int) {
	b.cost += b.p.Items[class].LeftOut - b.removed(bin, class)
	b.left[class]++
	b.occupy(bin, class, -1)
}

func (b *bins) occupy(bin, class int, count int64) {
	b.held[bin] = change(b.held[bin], class, count)
	for k, d := range b.p.Items[class].Demand {
		b.free[bin*b.dims+k] -= d * count
	}
}

// save returns a copy of the placement.
func (b *bins) save() *Packed {
	return &Packed{Bins: sliceutil.Map(b.held, slices.Clone), Cost: b.cost}
}
