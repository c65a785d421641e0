package mincost

import "math"

// What a unit of each row is worth can be told roughly, where there are far more columns than rows, before anything is
// solved: a sample of the columns, each with the room of those that it stands for, is solved in the same way; and then
// one row after the other outbids the rest, with the price at which it gets as much room as it has units. That leaves the
// solver few pivots to do, and only how many depends on it.
const (
	sampled  = 8  // one in how many columns is in the sample
	broad    = 4  // how many times as many columns as rows are worth one
	smallest = 64 // and how many columns
	bids     = 2  // of each row
	narrow   = 64 // the part of what a unit gains at best by which a bid differs from the one before, at most mostly
)

// worth returns roughly what a unit of each row is worth; nil if there are too many rows to tell, or it was stopped.
func (t *Transport) worth(alone []int64, stop func() bool) []int64 {
	rows, cols := len(t.Count), len(t.Room)
	if cols < broad*rows || cols < smallest {
		return nil
	}
	var solver TransportSolver
	s, err := solver.Solve(t.sample(alone), stop)
	if err != nil || !s.Optimal {
		return nil
	}
	a := newAuction(t, s.row)
	for range bids {
		for row := range rows {
			a.bid(row, alone[row])
		}
	}
	return a.worth
}

// sample returns a transport with one in so many columns, in place of those that cost about the same. With columns drawn at random
// all rows together would seem worth too much, or too little, which bids of one after the other mend only slowly.
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

// alike lists the columns so that those that cost about the same stand next to each other: by how dear they are for all rows
// together, each between its cheapest and its dearest.
func (t *Transport) alike() []int32 {
	const steps = 1 << 10
	cols, rows := len(t.Room), 0
	dear := make([]float64, cols)
	for row := range t.Count {
		costs := t.Cost[row*cols : (row+1)*cols]
		least, most := int64(math.MaxInt64), int64(math.MinInt64)
		for _, cost := range costs {
			if cost != Missing {
				least, most = min(least, cost), max(most, cost)
			}
		}
		if least >= most {
			continue
		}
		rows++
		scale := 1 / float64(most-least)
		for col, cost := range costs {
			dear[col] += float64(float64(min(cost, most)-least) * scale) // the same on all machines: not fused with the sum
		}
	}
	var from [steps + 1]int32
	step := func(col int) int { return int(dear[col] / float64(max(rows, 1)) * (steps - 1)) }
	for col := range dear {
		from[step(col)+1]++
	}
	for i := range steps {
		from[i+1] += from[i]
	}
	order := make([]int32, cols)
	for col := range dear {
		at := &from[step(col)]
		order[*at] = int32(col)
		*at++
	}
	return order
}

// An auction holds what units are worth while rows bid.
type auction struct {
	t     *Transport
	worth []int64
	least []int64    // by row: what it costs where it costs least
	best  []standing // by column
	lots  []offered  // scratch
}

// standing is what the two rows that gain most in a column gain there; nobody gains less than nothing.
type standing struct {
	gain, second int64
	row, next    int32
}

func newAuction(t *Transport, worth []int64) *auction {
	cols := len(t.Room)
	a := &auction{t: t, worth: worth, least: make([]int64, len(worth)), best: make([]standing, cols), lots: make([]offered, 0, cols)}
	for col := range a.best {
		a.best[col] = standing{row: none, next: none}
	}
	for row, w := range worth {
		a.least[row] = w
		for col, cost := range a.costs(row) {
			if cost != Missing {
				a.least[row] = min(a.least[row], cost)
				a.best[col].enter(int32(row), w-cost)
			}
		}
	}
	return a
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
	width := (a.worth[row] - a.least[row]) / narrow
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
		case s.next == int32(row) && gain >= s.second && gain <= s.gain:
			s.second = gain
		default:
			a.rank(col)
		}
	}
}

// offers lists the columns whose price for a row lies in a range, and returns how many of its units do not find room at a lower one.
// found is false if the last of them does not find it in the range.
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

// marginal returns the price of the last that is needed, cheapest first, for room for so many units; or otherwise, if all
// of it is not enough. It changes the order of lots.
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
