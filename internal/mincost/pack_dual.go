package mincost

import "math"

// dual is the Lagrangian dual of a packing. Every resource of a group of bins has a price ≥ 0, and its capacity may
// be exceeded at that price. The classes are then independent of each other:
//
//	L(π) = Σ classes min Σ x·(cost + π·demand) + left out
//	     + Σ groups count·min(0, opening − π·capacity),   x ≤ count·⌊capacity/demand⌋,
//	                                                      the maximum for a single class,
//
// L(π) is a lower bound on the cost of every placement, for any prices. The best prices are as good as the linear
// relaxation, and [ascent] searches for them.
type dual struct {
	p                  *Packing
	rows, groups, dims int
	demand, capacity   []float64 // in units that are powers of 2, so that they are exact
	most               []float64 // by row and group
	price              []float64
	mean, meanOpened   []float64 // fractional placement by row and group, and number of open bins by group
	reduced            []float64 // by group, for one row
	order              []int32
	// Value of L, number of its terms, and upper bound on the sum of their absolute values, which limits the
	// rounding error.
	value, terms, total float64
}

func newDual(p *Packing) *dual {
	d := &dual{p: p, rows: len(p.Items), groups: len(p.Bins)}
	if d.rows > 0 {
		d.dims = len(p.Items[0].Demand)
	}
	pairs, prices := d.rows*d.groups, d.groups*d.dims
	d.demand, d.capacity = make([]float64, d.rows*d.dims), make([]float64, prices)
	d.most, d.mean, d.price = make([]float64, pairs), make([]float64, pairs), make([]float64, prices)
	d.meanOpened, d.reduced = make([]float64, d.groups), make([]float64, d.groups)
	d.order = make([]int32, 0, d.groups)
	for k := range d.dims {
		d.measure(k)
	}
	for i := range p.Items {
		for j := range p.Bins {
			if p.Cost.Cost[i*d.groups+j] != Missing {
				d.most[i*d.groups+j] = float64(p.most(i, j))
			}
		}
	}
	return d
}

// most returns the maximum number of items of a class in an otherwise empty group of bins.
func (p *Packing) most(class, group int) int64 {
	bins, items := &p.Bins[group], &p.Items[class]
	each := items.Count
	for k, d := range items.Demand {
		if d > 0 {
			each = min(each, bins.Capacity[k]/d)
		}
	}
	if each == 0 || bins.Count == 0 {
		return 0
	}
	if bins.Count > items.Count/each {
		return items.Count
	}
	return each * bins.Count
}

// measure sets the unit of a resource.
func (d *dual) measure(k int) {
	largest := int64(1)
	for j := range d.p.Bins {
		largest = max(largest, d.p.Bins[j].Capacity[k])
	}
	_, exponent := math.Frexp(float64(largest))
	unit := math.Ldexp(1, exponent)
	for i := range d.p.Items {
		d.demand[i*d.dims+k] = float64(d.p.Items[i].Demand[k]) / unit
	}
	for j := range d.p.Bins {
		d.capacity[j*d.dims+k] = float64(d.p.Bins[j].Capacity[k]) / unit
	}
}

// solve computes the minimum at the current prices.
func (d *dual) solve() {
	d.value, d.terms, d.total = 0, 0, 0
	for i := range d.p.Items {
		d.row(i)
	}
	for j := range d.p.Bins {
		bins := &d.p.Bins[j]
		worth := 0.0
		for k := range d.dims {
			worth += d.price[j*d.dims+k] * d.capacity[j*d.dims+k]
		}
		if float64(bins.Opening) < worth {
			d.add(float64(bins.Count), float64(bins.Opening)-worth)
		}
		d.total += float64(bins.Count) * (float64(bins.Opening) + worth)
	}
}

// add adds a term to the value.
func (d *dual) add(count, each float64) {
	d.value += count * each
	d.terms++
}

// row places the items of a class at the minimum cost.
func (d *dual) row(i int) {
	items := &d.p.Items[i]
	out := float64(items.LeftOut)
	greatest := math.Abs(out)
	d.order = d.order[:0]
	costs := d.p.Cost.Cost[i*d.groups : (i+1)*d.groups]
	demand := d.demand[i*d.dims : (i+1)*d.dims]
	for j, c := range costs {
		if d.most[i*d.groups+j] == 0 {
			continue
		}
		r := float64(c)
		for k, need := range demand {
			r += d.price[j*d.dims+k] * need
		}
		greatest = max(greatest, math.Abs(r)+2*math.Abs(float64(c)))
		if d.reduced[j] = r; r < out {
			d.order = append(d.order, int32(j))
		}
	}
	left := float64(items.Count)
	most := d.most[i*d.groups : (i+1)*d.groups]
	for _, j := range cheapestFirst(d.order, d.reduced, most, left) {
		n := min(most[j], left)
		if n <= 0 {
			break
		}
		left -= n
		d.add(n, d.reduced[j])
	}
	d.add(left, out)
	d.total += float64(items.Count) * greatest // rounding may select any of them
}

// cheapestFirst moves the cheapest groups that together hold the given number of items to the front. The last one
// may only be used in part. It finds this group by partial sorting.
func cheapestFirst(order []int32, reduced, most []float64, count float64) []int32 {
	less := func(a, b int32) bool { return reduced[a] < reduced[b] || reduced[a] == reduced[b] && a < b }
	low, high := 0, len(order)
	for high-low > 1 {
		middle := order[low+(high-low)/2]
		order[low], order[low+(high-low)/2] = middle, order[low]
		split, held := low, most[middle]
		for k := low + 1; k < high; k++ {
			if less(order[k], middle) {
				split++
				order[k], order[split] = order[split], order[k]
				held += most[order[split]]
			}
		}
		order[low], order[split] = order[split], order[low]
		switch {
		case held-most[middle] >= count:
			high = split
		case held < count:
			low = split + 1
			count -= held
		default:
			return order[:split+1]
		}
	}
	return order[:high]
}

// bound returns an integer lower bound on the optimum. Costs are integers, so the value can be rounded up. Each
// term of L is rounded a few times and each addition once, each time by at most 2⁻⁵³ of the sum of absolute values.
// Twice this error is subtracted first.
func (d *dual) bound() int64 {
	safe := math.Ceil(d.value - d.total*(d.terms+float64(2*d.dims)+8)*0x1p-52)
	if !(math.Abs(safe) < maxTotal) {
		return -maxTotal
	}
	return int64(safe)
}
