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
	Bins    [][]Held // by bin, starting with the first group
	LeftOut []int64  // by class
	Placed  int64    // number of items
	Cost    int64
	Bound   int64 // no placement has a lower cost
	Whole   bool  // whether the search completed within the available time
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
	maxPairs  = 1 << 26
	maxBins   = 1 << 22
)

func (p *Packing) check() error {
	if p.Cost.Rows != len(p.Items) || p.Cost.Cols != len(p.Bins) || len(p.Cost.Cost) != len(p.Items)*len(p.Bins) ||
		len(p.Cost.Cost) > maxPairs {
		return fmt.Errorf("packing %d classes in %d groups: want a cost for each of at most %d pairs",
			len(p.Items), len(p.Bins), maxPairs)
	}
	for _, c := range p.Cost.Cost {
		if c != Missing && (c < -MaxCost || c > MaxCost) {
			return fmt.Errorf("packing: cost is %d: want at most %d in magnitude", c, int64(MaxCost))
		}
	}
	dims := -1
	items, err := p.checkItems(&dims)
	if err != nil {
		return err
	}
	bins, err := p.checkBins(&dims)
	if err == nil && items+bins >= maxTotal {
		err = fmt.Errorf("packing: total cost may be %.4g: want less than %.4g", items+bins, float64(maxTotal))
	}
	return err
}

// checkItems returns the maximum total cost of all items. checkBins does the same for the bins.
func (p *Packing) checkItems(dims *int) (most float64, err error) {
	for i, class := range p.Items {
		if err := checkAmounts(dims, class.Demand, class.Count); err != nil {
			return 0, fmt.Errorf("packing class %d: %w", i, err)
		}
		most += float64(class.Count) * max(MaxCost, math.Abs(float64(class.LeftOut)))
	}
	return most, nil
}

func (p *Packing) checkBins(dims *int) (most float64, err error) {
	count := 0.0
	for j, group := range p.Bins {
		if err := checkAmounts(dims, group.Capacity, group.Count); err != nil {
			return 0, fmt.Errorf("packing in group %d: %w", j, err)
		}
		if group.Opening < 0 || group.Opening > MaxCost {
			return 0, fmt.Errorf("packing in group %d: opening cost is %d: want 0 to %d", j, group.Opening,
				int64(MaxCost))
		}
		most += float64(group.Count) * float64(group.Opening)
		if count += float64(group.Count); count > maxBins {
			return 0, fmt.Errorf("packing in %.0f bins: want at most %d", count, maxBins)
		}
	}
	return most, nil
}

func checkAmounts(dims *int, amounts []int64, count int64) error {
	if *dims < 0 {
		*dims = len(amounts)
	}
	if len(amounts) != *dims {
		return fmt.Errorf("%d resources: want %d like the others", len(amounts), *dims)
	}
	if count < 0 || count > maxAmount {
		return fmt.Errorf("invalid count of %d", count)
	}
	for _, a := range amounts {
		if a < 0 || a > maxAmount || float64(a)*float64(count) >= maxTotal {
			return fmt.Errorf("amount is %d with a count of %d: want 0 to %d, and a total of less than %.4g", a, count,
				int64(maxAmount), float64(maxTotal))
		}
	}
	return nil
}
