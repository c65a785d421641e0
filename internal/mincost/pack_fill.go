package mincost

import (
	"cmp"
	"math"
	"slices"
)

// Pack places items in bins at little cost, and proves how much less it might be: prices of resources give a lower
// bound and a fractional placement, which is rounded, filled up and improved by moving, exchanging and evicting
// items. It does not claim to find the optimum. The same packing always gives the same placement, if time is not up
// before: once stop, which is called from time to time, returns true, Pack returns the best placement so far. All
// placements respect all capacities.
func Pack(p Packing, stop func() bool) (*Packed, error) {
	if err := p.check(); err != nil {
		return nil, err
	}
	d := newDual(&p)
	first := newBins(&p)
	whole := first.fill(d, stop)
	d.solve()
	best, bound := first, d.bound()
	if whole {
		bound, whole = newAscent(d).run(first.cost, stop)
	}
	if whole {
		b := newBins(&p)
		b.round(d)
		whole = b.fill(d, stop)
		if b.cost < best.cost {
			best = b
		}
	}
	whole = whole && best.search(d.sizes(), bound, stop)
	packed := best.save()
	packed.Bound, packed.Whole = bound, whole
	return packed, nil
}

// sizes says how much of all that is scarce one item of each class takes.
func (d *dual) sizes() []float64 {
	have, want := make([]float64, d.dims), make([]float64, d.dims)
	for k := range d.dims {
		for j := range d.p.Bins {
			have[k] += d.capacity[j*d.dims+k] * float64(d.p.Bins[j].Count)
		}
		for i := range d.p.Items {
			want[k] += d.demand[i*d.dims+k] * float64(d.p.Items[i].Count)
		}
	}
	sizes := make([]float64, d.rows)
	for i := range d.p.Items {
		for k := range d.dims {
			if have[k] > 0 {
				sizes[i] += d.demand[i*d.dims+k] / have[k] * want[k] / have[k]
			}
		}
	}
	return sizes
}

// fill puts what is left where it fits: large items first, each where it costs least at the present prices, and in
// the first bin of such a group.
func (b *bins) fill(d *dual, stop func() bool) (whole bool) {
	sizes := d.sizes()
	classes := ordered(len(sizes), func(x, y int) int { return cmp.Compare(sizes[y], sizes[x]) })
	reduced := make([]float64, d.groups)
	for _, i := range classes {
		if b.left[i] == 0 {
			continue
		}
		if stop() {
			return false
		}
		for j := range reduced {
			reduced[j] = float64(b.price(i, j))
			for k := range d.dims {
				reduced[j] += d.price[j*d.dims+k] * d.demand[i*d.dims+k]
			}
		}
		for _, j := range ordered(d.groups, func(x, y int) int { return cmp.Compare(reduced[x], reduced[y]) }) {
			b.fillGroup(i, j)
		}
	}
	return true
}

// fillGroup puts as many items of a class into the bins of a group as fit, if that costs less than to leave them out.
func (b *bins) fillGroup(class, group int) {
	if b.price(class, group) == Missing {
		return
	}
	for bin := b.first[group]; bin < b.first[group+1] && b.left[class] > 0; bin++ {
		for b.left[class] > 0 && b.added(bin, class) < b.p.Items[class].LeftOut && b.fits(bin, class) {
			b.put(bin, class)
		}
	}
}

// ordered returns 0 to n − 1 in an order, equal ones as they are.
func ordered(n int, compare func(x, y int) int) []int {
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, compare)
	return order
}

// round makes a placement of the mean of fractional ones. The bins of a group are filled one after the other with the
// same mixture, so that no resource is used up by items that need little of the others: of what the group is to hold,
// that comes next which is farthest behind its share.
func (b *bins) round(d *dual) {
	sizes := d.sizes()
	for j := range b.p.Bins {
		var target []portion
		for i := range b.p.Items {
			if n := d.mean[i*d.groups+j]; n > 0.01 {
				target = append(target, portion{class: i, each: n / max(1, d.meanOpened[j]), size: math.Sqrt(sizes[i])})
			}
		}
		for bin := b.first[j]; bin < b.first[j+1]; bin++ {
			if float64(bin-b.first[j]) >= d.meanOpened[j] {
				break
			}
			for k := range target {
				target[k].due += target[k].each
			}
			b.mix(bin, target)
		}
	}
}

// portion is what each bin of a group is to hold of a class, and how much of that was due and is not there yet. Size
// is how much it counts to be behind with a large item, in full for none of them.
type portion struct {
	class           int
	each, due, size float64
}

// mix fills a bin with what is due.
func (b *bins) mix(bin int, target []portion) {
	for {
		next := -1
		for k, s := range target {
			if s.due <= 0 || b.left[s.class] == 0 || next >= 0 && s.due*s.size <= target[next].due*target[next].size {
				continue
			}
			if b.added(bin, s.class) < b.p.Items[s.class].LeftOut && b.fits(bin, s.class) {
				next = k
			}
		}
		if next < 0 {
			return
		}
		b.put(bin, target[next].class)
		target[next].due--
	}
}
