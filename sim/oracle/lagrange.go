package oracle

import (
	"slices"

	"github.com/kubenergy/kubenergy/grid"
)

// Bound returns a cost that no schedule in time is below which runs every job in one piece, and the prices of cores
// that prove it. It is never below the cost of [Capacity.Fluid].
//
// With the cores of each step sold at a price λ instead of being limited, every job looks for its best start alone, and
//
//	L(λ) = Σ min over s of [cost of j at s, on c+λ] − Σ λ·cores
//
// is such a bound for whatever λ ≥ 0, as each inner minimum is exact. It begins at the prices of the fluid optimum
// and climbs by so many steps along subgradients, towards the cost of a schedule that is known to be possible, as
// Polyak does; 0: no such schedule is known. The steps halve where they lead nowhere.
func (p *Capacity) Bound(flow *Flow, known float64, steps int) (bound float64, prices []float64, err error) {
	bound = flow.Cost // in exact arithmetic L is not below it at the prices of the flow
	prices = slices.Clone(flow.Prices)
	if known <= bound {
		known = 1.02 * bound
	}
	at, scale, failed := slices.Clone(prices), 1.0, 0
	load := make([]float64, len(p.value))
	for range steps {
		value, err := p.relaxed(at, load)
		if err != nil {
			return 0, nil, err
		}
		if value > bound {
			bound, failed = value, 0
			copy(prices, at)
		} else if failed++; failed >= 8 {
			failed, scale = 0, scale/2
			copy(at, prices)
			continue
		}
		norm := 0.0
		for k := range load {
			load[k] -= p.room()
			if at[k] <= 0 && load[k] < 0 {
				load[k] = 0 // the price cannot fall any more
			}
			norm += load[k] * load[k]
		}
		if norm == 0 {
			break // every step that has a price is full and none is overfull: this is the optimum
		}
		step := scale * max(known-value, 1e-6*known) / norm
		for k := range at {
			at[k] = max(0, at[k]+step*load[k])
		}
	}
	return bound, prices, nil
}

// relaxed returns L at prices, and how many core-seconds jobs take of each step there.
func (p *Capacity) relaxed(prices, load []float64) (float64, error) {
	c, err := p.priced(prices)
	if err != nil {
		return 0, err
	}
	clear(load)
	total := 0.0
	var taken []want
	for i := range p.jobs {
		j := &p.jobs[i]
		start, cost := NonPreemptive(c, j)
		total += width(j) * cost
		taken = p.overlap(j, start, start.Add(j.Duration), taken[:0])
		for _, w := range taken {
			load[w.step] += w.most
		}
	}
	for _, price := range prices {
		total -= price * p.room()
	}
	return total, nil
}

// series is the intensity itself over the steps of the trace.
func (p *Capacity) series() (*grid.Series, error) { return p.priced(nil) }
