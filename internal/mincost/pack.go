package mincost

import (
	"fmt"
	"math"
)

// Packing is a packing problem with several resources. Items are placed in bins at the minimum cost without
// exceeding any capacity. Identical items form a class, and identical bins form a group.
type Packing struct {
	Items []Items
	Bins  []Bins
	Cost  Matrix // per item of a class (row) in a bin of a group (column); Missing if not permitted

	// Room reports whether a bin of a group can hold the given items, if this does not only depend on capacities.
	// For example, a part of a device must not be split over two devices. Removing items must not make a feasible
	// bin infeasible. If nil, only the capacities are checked.
	Room func(group int, held []Held) bool
}

// Items is a class of identical items.
type Items struct {
	Count  int64
	Demand []int64 // by resource
	// LeftOut is the cost of omitting one item. If it exceeds the saving of every exchange, as many items as
	// possible are placed.
	LeftOut int64
}

// Bins is a group of identical bins.
type Bins struct {
	Count    int64
	Capacity []int64 // by resource
	Opening  int64   // cost of using a bin, at least 0
}

// Held is a number of items of one class in a bin.
type Held struct {
	Class int
	Count int64
}

// Packed is a placement with a lower bound on the cost.
type Packed struct {
	Bins  [][]Held // by bin, starting with the first group
	Cost  int64    // including that of items that are left out
	Bound int64    // no placement has a lower cost
	Whole bool     // whether the search completed within the available time
}

// Gap returns (cost − bound)/|bound|. It is 0 if both are equal, and +Inf if only the bound is 0.
func (a *Packed) Gap() float64 {
	if a.Cost == a.Bound {
		return 0
	}
	return float64(a.Cost-a.Bound) / math.Abs(float64(a.Bound))
}

// The limits of a packing ensure that sums of costs fit into an int64, and that amounts are exact as float64.
const (
	maxAmount = 1 << 52
	maxTotal  = 1 << 62
)

// check returns an error if amounts or the total cost are too large. Costs and opening costs must be at most [MaxCost]
// in magnitude, and all items and bins must have the same resources.
func (p *Packing) check() error {
	most := 0.0
	for i, class := range p.Items {
		if err := checkAmounts(class.Demand, class.Count); err != nil {
			return fmt.Errorf("packing class %d: %w", i, err)
		}
		most += float64(class.Count) * max(MaxCost, math.Abs(float64(class.LeftOut)))
	}
	for j, group := range p.Bins {
		if err := checkAmounts(group.Capacity, group.Count); err != nil {
			return fmt.Errorf("packing in group %d: %w", j, err)
		}
		most += float64(group.Count) * float64(group.Opening)
	}
	if most >= maxTotal {
		return fmt.Errorf("packing: total cost may be %.4g: want less than %.4g", most, float64(maxTotal))
	}
	return nil
}

func checkAmounts(amounts []int64, count int64) error {
	for _, a := range amounts {
		if a < 0 || a > maxAmount || float64(a)*float64(count) >= maxTotal {
			return fmt.Errorf("amount is %d with a count of %d: want 0 to %d, and a total of less than %.4g", a, count,
				int64(maxAmount), float64(maxTotal))
		}
	}
	return nil
}
