package mincost

import (
	"cmp"
	"math"

	"github.com/kubenergy/kubenergy/internal/sliceutil"
)

// Pack places items in bins at a low cost and computes a lower bound on the cost. Prices of the resources result in
// the bound and a fractional placement. The fractional placement is rounded, completed and improved by moving,
// exchanging and evicting items. The result is not guaranteed to be optimal. It is deterministic unless the time is
// up: stop is called repeatedly, and once it returns true, Pack returns the best placement so far. All placements
// respect all capacities.
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

// sizes returns the size of an item of each class, relative to the scarce resources.
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

// fill places the remaining items: large items first, each in the cheapest group at the current prices, and in the
// first bin of the group with sufficient capacity.
func (b *bins) fill(d *dual, stop func() bool) (whole bool) {
	sizes := d.sizes()
	classes := sliceutil.Order(len(sizes), func(x, y int) int { return cmp.Compare(sizes[y], sizes[x]) })
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
		for _, j := range sliceutil.Order(d.groups, func(x, y int) int { return cmp.Compare(reduced[x], reduced[y]) }) {
			b.fillGroup(i, j)
		}
	}
	return true
}

// fillGroup places as many items of a class as possible in the bins of a group, if this costs less than omitting
// them.
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

// round converts the fractional placement to a placement. The bins of a group are filled one after another with the
// same mixture of classes, so that no resource is exhausted by items that need little of the others. The next item
// is always of the class that is farthest behind its target.
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

// portion contains the target number of items of a class per bin of a group, and the number that is due and not yet
// placed. The weight of a class increases with size, but less than proportionally.
type portion struct {
	class           int
	each, due, size float64
}

// mix fills a bin with items that are due.
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
