package mincost

import (
	"cmp"
	"math"
	"slices"
)

// What a unit of each row is worth can be told roughly, where there are several times as many columns as rows, before
// anything is solved: a sample of the columns, each with the room of those that it stands for, is solved in the same
// way; and then one row after the other outbids the rest, twice, with the price at which it gets as much room as it
// has units. That leaves the solver few pivots to do, and only how many depends on it.
const (
	sampled  = 8  // one in how many columns is in the sample
	broad    = 4  // how many times as many columns as rows are worth one
	smallest = 64 // and how many columns
	bids     = 2  // of each row
	narrow   = 64 // the part of what a unit gains at best by which most bids differ from the one before
)

// worth returns roughly what a unit of each row is worth; nil if there are too few columns to tell. It may be
// ErrStopped.
func (t *Transport) worth(alone []int64, stop func() bool) ([]int64, error) {
	rows, cols := len(t.Count), len(t.Room)
	if cols < broad*rows || cols < smallest {
		return nil, nil
	}
	var solver TransportSolver
	s, err := solver.Solve(t.sample(alone), stop)
	switch {
	case err != nil:
		return nil, err
	case !s.Optimal:
		return nil, ErrStopped
	}
	a := newAuction(t, s.row)
	for range bids {
		for row := range rows {
			if stop != nil && stop() {
				return nil, ErrStopped
			}
			a.bid(row, alone[row])
		}
	}
	return a.worth, nil
}

// sample returns a transport with one in so many columns, in place of those that cost about the same. With columns
// drawn at random all rows together would seem worth too much, or too little, which bids of one after the other mend
// only slowly.
func (t *Transport) sample(alone []int64) *Transport {
	cols := len(t.Room)
	order := t.alike()
	small := &Transport{Count: t.Count, Alone: t.Alone}
	if t.Alone == nil && len(alone) > 0 {
		small.most = alone[0]
	}
	for i := 0; i < cols; i += sampled {
		room := int64(0)
		for _, col := range order[i:min(i+sampled, cols)] {
			room = plus(room, t.Room[col])
		}
		small.Room = append(small.Room, room)
	}
	small.Cost = make([]int64, 0, len(t.Count)*len(small.Room))
	for row := range t.Count {
		for i := 0; i < cols; i += sampled {
			cell := row*cols + int(order[min(i+sampled/2, cols-1)])
			small.Cost = append(small.Cost, t.Cost[cell])
			if t.Limit != nil {
				small.Limit = append(small.Limit, times(t.limit(cell), sampled))
			}
		}
	}
	return small
}

// alike lists the columns so that those that cost about the same stand next to each other: by how dear they are for
// all rows together, each between its cheapest and its dearest.
func (t *Transport) alike() []int32 {
	cols := len(t.Room)
	type priced struct {
		dear float64
		col  int32
	}
	order := make([]priced, cols)
	for col := range order {
		order[col].col = int32(col)
	}
	for row := range t.Count {
		costs := t.Cost[row*cols : (row+1)*cols]
		least, most := int64(math.MaxInt64), int64(math.MinInt64)
		for _, cost := range costs {
			if cost != Missing {
				least, most = min(least, cost), max(most, cost)
			}
		}
		scale := 1 / float64(max(1, most-least))
		for col, cost := range costs {
			if cost == Missing {
				order[col].dear++
				continue
			}
			order[col].dear += float64(float64(cost-least) * scale) // the same on all machines: not fused with the sum
		}
	}
	slices.SortFunc(order, func(a, b priced) int {
		if a.dear != b.dear {
			return cmp.Compare(a.dear, b.dear)
		}
		return cmp.Compare(a.col, b.col)
	})
	sorted := make([]int32, cols)
	for i := range order {
		sorted[i] = order[i].col
	}
	return sorted
}

// An auction holds what units are worth while rows bid.
type auction struct {
	t     *Transport
	worth []int64
	least []int64    // by row: what it costs where it costs least
	most  []int64    // and most
	best  []standing // by column
	lots  []offered  // scratch
}

// standing is what the two rows that gain most in a column gain there; a gain is never below 0.
type standing struct {
	gain, second int64
	row, next    int32
}

func newAuction(t *Transport, worth []int64) *auction {
	cols := len(t.Room)
	a := &auction{t: t, worth: worth, best: make([]standing, cols), lots: make([]offered, 0, cols)}
	a.least, a.most = make([]int64, len(worth)), make([]int64, len(worth))
	for col := range a.best {
		a.best[col] = standing{row: none, next: none}
	}
	for row, w := range worth {
		least, most := int64(math.MaxInt64), int64(math.MinInt64)
		for col, cost := range a.costs(row) {
			if cost != Missing {
				least, most = min(least, cost), max(most, cost)
				a.best[col].enter(int32(row), w-cost)
			}
		}
		a.least[row], a.most[row] = least, most
	}
	return a
}

// gain returns what a unit of a row gains at best. One that is worth more than it costs anywhere may well be left
// alone, and that says nothing about how dear its columns are.
func (a *auction) gain(row int) int64 {
	return max(0, min(a.worth[row], a.most[row])-a.least[row])
}

func (a *auction) costs(row int) []int64 { return a.t.Cost[row*len(a.best) : (row+1)*len(a.best)] }

// rank finds the two rows that gain most in a column.
func (a *auction) rank(col int) {
	s := standing{row: none, next: none}
	for row, worth := range a.worth {
		if cost := a.t.Cost[row*len(a.best)+col]; cost != Missing {
			s.enter(int32(row), worth-cost)
		}
	}
	a.best[col] = s
}

func (s *standing) enter(row int32, gain int64) {
	switch {
	case gain > s.gain:
		*s = standing{gain: gain, second: s.gain, row: row, next: s.row}
	case gain > s.second:
		s.second, s.next = gain, row
	}
}

// bid sets what a unit of a row is worth to the price at which it gets room for all of them.
func (a *auction) bid(row int, alone int64) {
	// It will not be far from what it was, so most columns need not be put in order.
	width := a.gain(row) / narrow
	units := a.t.Count[row]
	within, found := a.offers(row, a.worth[row]-width, a.worth[row]+width, units)
	if !found {
		within, _ = a.offers(row, math.MinInt64, math.MaxInt64, units)
	}
	worth := min(alone, marginal(a.lots, within, alone))
	a.worth[row] = worth
	for col, cost := range a.costs(row) {
		if cost == Missing {
			continue
		}
		s, gain := &a.best[col], worth-cost
		switch {
		case s.row != int32(row) && s.next != int32(row):
			s.enter(int32(row), gain)
		case s.row == int32(row) && gain >= s.second:
			s.gain = gain
		case s.next == int32(row) && gain > s.gain:
			*s = standing{gain: gain, second: s.gain, row: int32(row), next: s.row}
		case s.next == int32(row) && gain >= s.second:
			s.second = gain
		default:
			a.rank(col)
		}
	}
}

// offers lists the columns whose price for a row lies in a range, and returns how many of its units do not find room
// at a lower one. found is false if the last of them does not find it in the range.
func (a *auction) offers(row int, low, high, units int64) (within int64, found bool) {
	lots, n, room := a.lots[:len(a.best)], 0, int64(0)
	for col, cost := range a.costs(row) {
		if cost == Missing {
			continue
		}
		gain := a.best[col].gain // of another, which is to be outbid
		if a.best[col].row == int32(row) {
			gain = a.best[col].second
		}
		switch price := cost + gain; {
		case price < low:
			units -= min(units, a.t.Room[col])
		case price <= high:
			lots[n] = offered{price, a.t.Room[col]}
			n++
			room = plus(room, a.t.Room[col])
		}
	}
	a.lots = lots[:n]
	return units, units > 0 && units <= room
}

// offered is the room of a column, and the price at which a row gets it.
type offered struct{ price, room int64 }

// marginal returns the price of the last that is needed, cheapest first, for room for so many units; or otherwise, if
// all of it is not enough. It changes the order of lots.
func marginal(lots []offered, units, otherwise int64) int64 {
	for len(lots) > 0 {
		pivot := lots[len(lots)/2].price
		low, next, high := 0, 0, len(lots) // below the pivot up to low, at it up to next, above it from high
		below, at := int64(0), int64(0)
		for next < high {
			switch l := lots[next]; {
			case l.price < pivot:
				below = plus(below, l.room)
				lots[low], lots[next] = l, lots[low]
				low++
				next++
			case l.price == pivot:
				at = plus(at, l.room)
				next++
			default:
				high--
				lots[next], lots[high] = lots[high], l
			}
		}
		switch {
		case low > 0 && units <= below:
			lots = lots[:low]
		case units <= plus(below, at):
			return pivot
		default:
			units -= plus(below, at)
			lots = lots[high:]
		}
	}
	return otherwise
}
