package mincost

// What a unit of each row is worth can be told roughly, where there are far more columns than rows, before anything is
// solved: a sample of the columns, each with the room of those that it stands for, is solved in the same way; and then
// one row after the other outbids the rest, with the price at which it gets as much room as it has units. That leaves the
// solver few pivots to do, and only how many depends on it.
const (
	sampled  = 8  // one in how many columns is in the sample, and how many times as many as rows there must be
	smallest = 64 // columns that are worth a sample
)

// worth returns roughly what a unit of each row is worth; nil if there are too many rows to tell, or it was stopped.
func (t *Transport) worth(alone []int64, stop func() bool) []int64 {
	rows, cols := len(t.Count), len(t.Room)
	if cols < sampled*rows || cols < smallest {
		return nil
	}
	var solver TransportSolver
	s, err := solver.Solve(t.sample(alone), stop)
	if err != nil || !s.Optimal {
		return nil
	}
	a := auction{t: t, worth: s.row, best: make([]standing, cols), lots: make([]offered, 0, cols)}
	for col := range a.best {
		a.rank(col)
	}
	for row := range rows {
		a.bid(row, alone[row])
	}
	for row := range rows {
		a.raise(row)
	}
	return a.worth
}

// sample returns a transport with one in so many columns, chosen without a pattern.
func (t *Transport) sample(alone []int64) *Transport {
	cols := len(t.Room)
	order := make([]int32, cols)
	for col := range order {
		order[col] = int32(col)
	}
	shuffle(order)
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
			cell := row*cols + int(order[i])
			small.Cost = append(small.Cost, t.Cost[cell])
			if t.Limit != nil {
				small.Limit = append(small.Limit, times(t.limit(cell), sampled))
			}
		}
	}
	return small
}

// An auction holds what units are worth while rows bid.
type auction struct {
	t     *Transport
	worth []int64
	best  []standing // by column
	lots  []offered  // scratch
}

// standing is what the two rows that gain most in a column gain there; nobody gains less than nothing.
type standing struct {
	gain, second int64
	row, next    int32
}

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
	costs := a.t.Cost[row*len(a.best) : (row+1)*len(a.best)]
	a.lots = a.lots[:0]
	for col, cost := range costs {
		if cost == Missing {
			continue
		}
		gain := a.best[col].gain // of another, which is to be outbid
		if a.best[col].row == int32(row) {
			gain = a.best[col].second
		}
		a.lots = append(a.lots, offered{cost + gain, a.t.Room[col]})
	}
	worth := min(alone, marginal(a.lots, a.t.Count[row], alone))
	a.worth[row] = worth
	for col, cost := range costs {
		if cost == Missing {
			continue
		}
		switch s, gain := &a.best[col], worth-cost; {
		case s.row == int32(row) && gain >= s.second:
			s.gain = gain
		case s.row == int32(row) || s.next == int32(row):
			a.rank(col)
		default:
			s.enter(int32(row), gain)
		}
	}
}

// bold is the part of what a unit gains at best by which its worth is thought to be more. Too little worth is worse than too
// much: the last units then go where nobody gains, at prices that tell nothing. A row that is worth too much only has its
// columns filled earlier.
const bold = 8

// raise makes a unit of a row worth more.
func (a *auction) raise(row int) {
	least := a.worth[row]
	for _, cost := range a.t.Cost[row*len(a.best) : (row+1)*len(a.best)] {
		if cost != Missing {
			least = min(least, cost)
		}
	}
	a.worth[row] += (a.worth[row] - least) / bold
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
