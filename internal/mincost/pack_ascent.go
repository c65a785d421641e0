package mincost

import (
	"math"
	"slices"
)

// ascent searches for the best prices with the primal-dual hybrid gradient method (Chambolle and Pock 2011), with
// diagonal step sizes and restarts from the mean (Applegate et al. 2021). It solves the linear relaxation. The
// variables are fractions from 0 to 1: the fraction of the maximum number of items of a class in a group, the
// fraction of a class that is omitted, and the fraction of a group's bins that are open.
//
//	Σ part·share + out = 1              for each class:    a worth
//	Σ load·share − open ≤ 0             for each resource: a price ≥ 0
//
// No coefficient exceeds 1. Any prices result in a valid bound, and the search evaluates the bound at its current
// prices.
type ascent struct {
	d       *dual
	unit    float64 // divisor of costs
	row     []int   // by row: index of its first pair; one more at the end
	pairs   []pair
	load    []float64 // by pair and resource
	out     []float64 // by row: cost of omitting all items
	opening []float64 // by group
	count   []float64 // number of bins by group
	weight  float64   // ratio of the step sizes of worths and prices to those of fractions

	x, mean, start    shares // last point, mean since the last restart, and point of the restart
	walked            int    // steps since the last restart
	bound             int64  // best bound, and the prices for it
	best              []float64
	worthStep         []float64
	priceStep         []float64
	balance, overdraw []float64 // buffers by row, and by group and resource
}

// pair is a class and a group that may hold it.
type pair struct {
	group      int
	part, cost float64 // fraction of the class that fits into the group, and its cost
	step       float64
}

// shares is a point of the search.
type shares struct {
	pair, out, open []float64
	worth, price    []float64
}

func newShares(pairs, rows, groups, dims int) shares {
	return shares{
		make([]float64, pairs), make([]float64, rows), make([]float64, groups), make([]float64, rows),
		make([]float64, groups*dims),
	}
}

func (s *shares) all() [5][]float64 { return [...][]float64{s.pair, s.out, s.open, s.worth, s.price} }

func (s *shares) set(to *shares) {
	for k, v := range to.all() {
		copy(s.all()[k], v)
	}
}

func newAscent(d *dual) *ascent {
	a := &ascent{
		d: d, row: make([]int, d.rows+1), out: make([]float64, d.rows), opening: make([]float64, d.groups),
		count: make([]float64, d.groups),
	}
	for i := range d.p.Items {
		count := float64(d.p.Items[i].Count)
		a.out[i] = count * float64(d.p.Items[i].LeftOut)
		for j := range d.p.Bins {
			most := d.most[i*d.groups+j]
			if most == 0 {
				continue
			}
			a.pairs = append(a.pairs, pair{
				group: j, part: most / count, cost: most * float64(d.p.Cost.Cost[i*d.groups+j]),
			})
			for k := range d.dims {
				load := 0.0
				if need := d.demand[i*d.dims+k]; need > 0 {
					load = most * need / (float64(d.p.Bins[j].Count) * d.capacity[j*d.dims+k])
				}
				a.load = append(a.load, load)
			}
		}
		a.row[i+1] = len(a.pairs)
	}
	for j := range d.p.Bins {
		a.count[j] = float64(d.p.Bins[j].Count)
		a.opening[j] = a.count[j] * float64(d.p.Bins[j].Opening)
	}
	a.steps()
	a.x, a.mean, a.start = newShares(len(a.pairs), d.rows, d.groups, d.dims),
		newShares(len(a.pairs), d.rows, d.groups, d.dims), newShares(len(a.pairs), d.rows, d.groups, d.dims)
	a.balance, a.overdraw = make([]float64, d.rows), make([]float64, d.groups*d.dims)
	return a
}

// steps sets the unit of costs and the step sizes.
func (a *ascent) steps() {
	d := a.d
	a.worthStep, a.priceStep = make([]float64, d.rows), make([]float64, d.groups*d.dims)
	sum, n := 0.0, 0.0
	for i := range d.rows {
		a.worthStep[i] = 1
		for at := a.row[i]; at < a.row[i+1]; at++ {
			p := &a.pairs[at]
			a.worthStep[i] += p.part
			p.step = p.part
			for k := range d.dims {
				load := a.load[at*d.dims+k]
				p.step += load
				a.priceStep[p.group*d.dims+k] += load
			}
			p.step = 1 / p.step
			sum += math.Abs(p.cost) / p.part
			n++
		}
		a.worthStep[i] = 1 / a.worthStep[i]
	}
	for at := range a.priceStep {
		a.priceStep[at] = 1 / (1 + a.priceStep[at])
	}
	a.unit = max(sum/max(n, 1), 1)
	squares := 0.0
	for k := range a.pairs {
		squares += a.pairs[k].cost / a.unit * a.pairs[k].cost / a.unit
	}
	a.weight = math.Sqrt(max(squares, 1e-6) / float64(d.rows+1))
}

// Limits of an ascent: the number of processed coefficients, the number of steps between two evaluations, the
// distance of the bound from the cost of a placement or of the relaxation that is considered sufficient, and the
// minimum increase of the bound over a number of evaluations.
const (
	ascentWork = 1 << 29
	ascentLook = 40
	settling   = 40
	nearEnough = 1e-4
	stalled    = 1e-5
)

// A restart is made when the error has decreased by this factor, or after this fraction of all steps.
const (
	restartError = 0.5
	restartShare = 0.4
)

// run increases the bound up to the cost of a known placement, and stores the best prices and a fractional
// placement in d.
func (a *ascent) run(cost int64, stop func() bool) (bound int64, whole bool) {
	d := a.d
	d.solve()
	a.bound, a.best = d.bound(), slices.Clone(d.price)
	first, before := a.bound, a.bound
	last, whole := math.Inf(1), true
	most := ascentWork / (ascentLook * (d.dims + 1) * (len(a.pairs) + 1))
	for look := 1; look <= most && !nearBound(cost, a.bound); look++ {
		if whole = a.walk(stop); !whole {
			break
		}
		from, e, near := a.look()
		if near || look%settling == 0 && a.bound > first &&
			float64(a.bound-before) < stalled*math.Abs(float64(a.bound)) {
			break
		}
		if look%settling == 0 {
			before = a.bound
		}
		if e < restartError*last || float64(a.walked) >= restartShare*float64(look*ascentLook) {
			a.restart(from)
			last = e
		}
	}
	copy(d.price, a.best)
	a.placement()
	return a.bound, whole
}

// nearBound reports whether a cost is sufficiently close to the bound.
func nearBound(cost, bound int64) bool {
	return float64(cost)-float64(bound) <= nearEnough*math.Abs(float64(bound))
}

// walk performs a number of steps, and returns false if the time is up.
func (a *ascent) walk(stop func() bool) bool {
	for range ascentLook {
		if stop() {
			return false
		}
		a.step()
		a.walked++
		for k, mean := range a.mean.all() {
			for i, v := range a.x.all()[k] {
				mean[i] += (v - mean[i]) / float64(a.walked)
			}
		}
	}
	return true
}

// look updates the bound with the current prices, and returns the better one of the last point and the mean since
// the restart.
func (a *ascent) look() (best *shares, e float64, near bool) {
	last, _ := a.error(&a.x)
	e, near = a.error(&a.mean)
	best = &a.mean
	if last < e {
		best, e = &a.x, last
	}
	for _, point := range []*shares{&a.mean, &a.x} {
		a.prices(point)
		a.d.solve()
		if bound := a.d.bound(); bound > a.bound {
			a.bound = bound
			copy(a.best, a.d.price)
		}
	}
	return best, e, near
}

// step performs one step of the method.
func (a *ascent) step() {
	d, x := a.d, &a.x
	clear(a.overdraw)
	for i := range d.rows {
		old := x.out[i]
		x.out[i] = clip(old - (a.out[i]/a.unit-x.worth[i])/a.weight)
		balance := 1 - (2*x.out[i] - old)
		for at := a.row[i]; at < a.row[i+1]; at++ {
			p := &a.pairs[at]
			slope := p.cost/a.unit - x.worth[i]*p.part
			load := a.load[at*d.dims : (at+1)*d.dims]
			price := x.price[p.group*d.dims : (p.group+1)*d.dims]
			for k, l := range load {
				slope += price[k] * l
			}
			old := x.pair[at]
			v := clip(old - slope*p.step/a.weight)
			x.pair[at] = v
			ahead := 2*v - old
			if ahead == 0 {
				continue
			}
			balance -= p.part * ahead
			over := a.overdraw[p.group*d.dims : (p.group+1)*d.dims]
			for k, l := range load {
				over[k] += l * ahead
			}
		}
		a.balance[i] = balance
	}
	for j := range d.groups {
		old := x.open[j]
		slope := a.opening[j] / a.unit
		for k := range d.dims {
			slope -= x.price[j*d.dims+k]
		}
		x.open[j] = clip(old - slope/(float64(max(d.dims, 1))*a.weight))
		ahead := 2*x.open[j] - old
		for k := range d.dims {
			at := j*d.dims + k
			x.price[at] = max(0, x.price[at]+a.weight*a.priceStep[at]*(a.overdraw[at]-ahead))
		}
	}
	for i, balance := range a.balance {
		x.worth[i] += a.weight * a.worthStep[i] * balance
	}
}

func clip(v float64) float64 { return min(max(v, 0), 1) }

// error returns the distance of a point from the optimum, and whether it is sufficiently small.
func (a *ascent) error(x *shares) (e float64, near bool) {
	d := a.d
	cost, value, missing := 0.0, 0.0, 0.0
	clear(a.overdraw)
	for i := range d.rows {
		balance := 1 - x.out[i]
		cost += a.out[i] * x.out[i]
		value += x.worth[i]*a.unit + min(0, a.out[i]-x.worth[i]*a.unit)
		for at := a.row[i]; at < a.row[i+1]; at++ {
			p := &a.pairs[at]
			slope := p.cost - x.worth[i]*a.unit*p.part
			for k := range d.dims {
				slope += x.price[p.group*d.dims+k] * a.unit * a.load[at*d.dims+k]
				a.overdraw[p.group*d.dims+k] += a.load[at*d.dims+k] * x.pair[at]
			}
			cost += p.cost * x.pair[at]
			value += min(0, slope)
			balance -= p.part * x.pair[at]
		}
		missing += balance * balance
	}
	for j := range d.groups {
		slope := a.opening[j]
		for k := range d.dims {
			slope -= x.price[j*d.dims+k] * a.unit
			if over := a.overdraw[j*d.dims+k] - x.open[j]; over > 0 {
				missing += over * over
			}
		}
		cost += a.opening[j] * x.open[j]
		value += min(0, slope)
	}
	gap := (cost - value) / a.unit
	near = math.Abs(cost-value) <= nearEnough*(math.Abs(cost)+1) && missing <= nearEnough*nearEnough
	return math.Sqrt(a.weight*a.weight*missing + gap*gap), near
}

// restart continues from the given point. It adjusts the step sizes by the changes of fractions and prices since
// the last restart.
func (a *ascent) restart(from *shares) {
	moved := [2]float64{}
	for k, v := range from.all() {
		for i, s := range a.start.all()[k] {
			moved[k/3] += (v[i] - s) * (v[i] - s)
		}
	}
	if moved[0] > 1e-20 && moved[1] > 1e-20 {
		a.weight = math.Sqrt(a.weight * math.Sqrt(moved[1]/moved[0]))
	}
	a.x.set(from)
	a.start.set(from)
	for _, v := range a.mean.all() {
		clear(v)
	}
	a.walked = 0
}

// prices copies the prices of a point to d.
func (a *ascent) prices(x *shares) {
	d := a.d
	for j := range d.groups {
		for k := range d.dims {
			at := j*d.dims + k
			d.price[at] = 0
			if whole := a.count[j] * d.capacity[at]; whole > 0 {
				d.price[at] = x.price[at] * a.unit / whole
			}
		}
	}
}

// placement copies the mean fractional placement to d.
func (a *ascent) placement() {
	d := a.d
	clear(d.mean)
	for i := range d.rows {
		for at := a.row[i]; at < a.row[i+1]; at++ {
			p := &a.pairs[at]
			d.mean[i*d.groups+p.group] = a.x.pair[at] * p.part * float64(d.p.Items[i].Count)
		}
	}
	for j := range d.groups {
		d.meanOpened[j] = a.x.open[j] * a.count[j]
	}
}
