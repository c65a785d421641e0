package mincost

import (
	"fmt"
	"math"
)

// Packing is a problem of several resources: items are put into bins, none of whose resources is overdrawn, at the
// least cost. Items that are alike count as one class, and bins that are alike as one group.
type Packing struct {
	Items []Items
	Bins  []Bins
	Cost  Matrix // of one item of a class (row) in a bin of a group (column); Missing: it may not be there

	// Room reports whether a bin of a group has room for all that it is to hold, where capacities do not say it all:
	// of devices whose parts are given away, for one, no part can come from two. Nothing that has room may lose it by
	// holding less. Nil: capacities say it all.
	Room func(group int, held []Held) bool
}

// Items are so many items that are alike.
type Items struct {
	Count  int64
	Demand []int64 // by resource
	// what it costs to leave one out; if that is more than any exchange can save, most items are placed first
	LeftOut int64
}

// Bins are so many bins that are alike.
type Bins struct {
	Count    int64
	Capacity []int64 // by resource
	Opening  int64   // what a bin costs that holds anything, from 0
}

// Held are items of a class in one bin.
type Held struct {
	Class int
	Count int64
}

// Packed is a placement with a proof of how good it is.
type Packed struct {
	Bins    [][]Held // by bin, those of the first group first
	LeftOut []int64  // by class
	Placed  int64    // items
	Cost    int64
	Bound   int64 // no placement costs less
	Whole   bool  // there was time for everything
}

// Gap returns (cost − bound)/|bound|, 0 where both are the same and +Inf where the bound alone is 0.
func (a *Packed) Gap() float64 {
	if a.Cost == a.Bound {
		return 0
	}
	return float64(a.Cost-a.Bound) / math.Abs(float64(a.Bound))
}

// The limits of a packing keep sums of costs within int64, and amounts within what a float64 holds exactly.
const (
	maxAmount = 1 << 52
	maxTotal  = 1 << 62
	maxPairs  = 1 << 26
	maxBins   = 1 << 22
)

func (p *Packing) check() error {
	if p.Cost.Rows != len(p.Items) || p.Cost.Cols != len(p.Bins) || len(p.Cost.Cost) != len(p.Items)*len(p.Bins) ||
		len(p.Cost.Cost) > maxPairs {
		return fmt.Errorf("packing %d classes in %d groups: want a cost for each of at most %d pairs", len(p.Items),
			len(p.Bins), maxPairs)
	}
	for _, c := range p.Cost.Cost {
		if c != Missing && (c < -MaxCost || c > MaxCost) {
			return fmt.Errorf("packing: a cost of %d, want at most %d either way", c, int64(MaxCost))
		}
	}
	dims := -1
	items, err := p.checkItems(&dims)
	if err != nil {
		return err
	}
	bins, err := p.checkBins(&dims)
	if err == nil && items+bins >= maxTotal {
		err = fmt.Errorf("packing at a cost of up to %.4g: want less than %.4g", items+bins, float64(maxTotal))
	}
	return err
}

// checkItems returns what all items may cost, and checkBins what all bins may.
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
			return 0, fmt.Errorf("packing in group %d: opening costs %d, want 0 to %d", j, group.Opening,
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
		return fmt.Errorf("%d resources, others have %d", len(amounts), *dims)
	}
	if count < 0 || count > maxAmount {
		return fmt.Errorf("a count of %d", count)
	}
	for _, a := range amounts {
		if a < 0 || a > maxAmount || float64(a)*float64(count) >= maxTotal {
			return fmt.Errorf("%d of a resource, %d times: want 0 to %d, and less than %.4g in all", a, count,
				int64(maxAmount), float64(maxTotal))
		}
	}
	return nil
}
