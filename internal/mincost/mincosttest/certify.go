// Package mincosttest verifies packings without sharing code with the solver.
package mincosttest

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kubenergy/kubenergy/internal/mincost"
)

// Certify checks that a is a valid placement for p, that its cost is correct, and that the cost is not below its
// bound. It does not verify the bound itself.
func Certify(p *mincost.Packing, a *mincost.Packed) error {
	left := make([]int64, len(p.Items))
	for i, class := range p.Items {
		left[i] = class.Count
	}
	bin, cost := 0, int64(0)
	for j, group := range p.Bins {
		for range group.Count {
			if bin >= len(a.Bins) {
				return errors.New("certifying packing: bins are missing")
			}
			c, err := holds(p, j, a.Bins[bin], left)
			if err != nil {
				return fmt.Errorf("certifying packing: bin %d: %w", bin, err)
			}
			cost += c
			bin++
		}
	}
	for i, n := range left {
		cost += n * p.Items[i].LeftOut
	}
	if bin != len(a.Bins) || cost != a.Cost || a.Cost < a.Bound {
		return fmt.Errorf("certifying packing: %d bins cost %d, want %d bins at %d with a bound of %d", bin, cost,
			len(a.Bins), a.Cost, a.Bound)
	}
	return nil
}

// holds removes the contents of a bin from the remaining items, and returns their cost.
func holds(p *mincost.Packing, group int, held []mincost.Held, left []int64) (cost int64, err error) {
	bins := &p.Bins[group]
	free := slices.Clone(bins.Capacity)
	for _, h := range held {
		if uint(h.Class) >= uint(len(left)) || h.Count < 1 || h.Count > left[h.Class] {
			return 0, fmt.Errorf("invalid number of items %d of class %d", h.Count, h.Class)
		}
		c := p.Cost.Cost[h.Class*p.Cost.Cols+group]
		if c == mincost.Missing {
			return 0, fmt.Errorf("class %d is not permitted", h.Class)
		}
		left[h.Class] -= h.Count
		cost += c * h.Count
		for k, d := range p.Items[h.Class].Demand {
			if free[k] -= d * h.Count; free[k] < 0 {
				return 0, fmt.Errorf("capacity of resource %d is exceeded", k)
			}
		}
	}
	if len(held) == 0 {
		return 0, nil
	}
	if p.Room != nil && !p.Room(group, held) {
		return 0, errors.New("items do not fit according to Room")
	}
	return cost + bins.Opening, nil
}
