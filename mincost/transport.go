package mincost

import (
	"fmt"
	"math"
)

// Transport is the problem of placing units of several kinds, the rows, into rooms, the columns. Units of a row are
// alike, as are the places of a column, so ten thousand equal jobs are one row with a count.
type Transport struct {
	Count []int64 // by row: how many units there are
	Room  []int64 // by column: how many units of any rows it holds
	Cost  []int64 // of one unit of row r in column c at r·len(Room) + c; Missing: it cannot be there

	// Limit says, at the same index as Cost, how many units of that row the column holds at most; nil: no such limits.
	Limit []int64

	// Alone says what it costs to leave a unit of a row unplaced. Nil: as many units as possible are placed, and those
	// as cheaply as possible.
	Alone []int64

	most int64 // what an aggregated problem inherits in place of a nil Alone
}

// Lot is a number of units of a row in a column.
type Lot struct {
	Row, Col int
	Units    int64
}

// maxUnits keeps sums of what a transport has to place within int64.
const maxUnits = 1 << 40

// SolveTransport solves a transport from scratch, after exact aggregation of rows that are alike and of columns that
// are. When stop, which may be nil, says so, the best solution so far is returned, which is never worse than
// Greedy's.
func SolveTransport(t *Transport, stop func() bool) (*Shipment, error) {
	classes, err := Aggregate(t)
	if err != nil {
		return nil, err
	}
	var s TransportSolver
	shipment, err := s.Solve(classes.Transport, stop)
	if err != nil {
		return nil, err
	}
	return classes.Expand(shipment), nil
}

// span is what has to be known of a transport before it is solved.
type span struct {
	units       int64 // of all rows
	least, most int64 // costs: at most and at least 0
}

// check refuses sizes and numbers that make no sense, or could overflow.
func (t *Transport) check() (s span, err error) {
	if err = t.checkSizes(); err != nil {
		return s, err
	}
	if s.units, err = t.checkUnits(); err != nil {
		return s, err
	}
	for row, cost := range t.Alone {
		if absolute(cost) > MaxCost {
			return s, fmt.Errorf("checking a transport: row %d costs %d where it is alone: want at most %d either way",
				row, cost, int64(MaxCost))
		}
	}
	for _, cost := range t.Cost {
		if cost != Missing {
			s.least, s.most = min(s.least, cost), max(s.most, cost)
		}
	}
	if limit := min(MaxCost, math.MaxInt64/max(s.units, 1)); s.least < -limit || s.most > limit {
		return s, fmt.Errorf("checking a transport: costs go from %d to %d: want at most %d either way, for %d units",
			s.least, s.most, limit, s.units)
	}
	return s, nil
}

// checkSizes refuses what does not belong together, or is too large.
func (t *Transport) checkSizes() error {
	rows, cols := len(t.Count), len(t.Room)
	if rows > maxNodes/4 || cols > maxNodes/4 || rows*cols > maxArcs/2 || len(t.Cost) != rows*cols ||
		t.Limit != nil && len(t.Limit) != len(t.Cost) || t.Alone != nil && len(t.Alone) != rows {
		return fmt.Errorf(
			"checking a transport of %d rows and %d columns: it has %d costs, %d limits and %d costs of being alone",
			rows, cols, len(t.Cost), len(t.Limit), len(t.Alone))
	}
	return nil
}

// checkUnits returns how many units all rows have.
func (t *Transport) checkUnits() (units int64, err error) {
	for row, count := range t.Count {
		if count < 0 || count > maxUnits-units {
			return 0, fmt.Errorf("checking a transport: row %d has %d units: want at most %d of all rows together", row,
				count, int64(maxUnits))
		}
		units += count
	}
	for col, room := range t.Room {
		if room < 0 {
			return 0, fmt.Errorf("checking a transport: column %d has room for %d", col, room)
		}
	}
	for cell, limit := range t.Limit {
		if limit < 0 {
			return 0, fmt.Errorf("checking a transport: row %d has a limit of %d in column %d", cell/len(t.Room), limit,
				cell%len(t.Room))
		}
	}
	return units, nil
}

// penalties returns what units that are not placed cost, by row.
func (t *Transport) penalties(s span) []int64 {
	if t.Alone != nil {
		return t.Alone
	}
	alone := make([]int64, len(t.Count))
	most := max(t.most, t.placingFirst(s))
	for row := range alone {
		alone[row] = most
	}
	return alone
}

// placingFirst returns a cost that no exchange can save that places one unit less. Such an exchange alternates between
// rows and columns and meets none twice, so it has one edge more on one side than on the other, and at most as many on
// each as there are rows or columns.
func (t *Transport) placingFirst(s span) int64 {
	return (s.most-s.least)*int64(min(len(t.Count), len(t.Room))+1) + 1
}

// limit returns how many units of a row a column may hold: Unlimited if it is no limit, because there are no more units
// or there is no more room anyway.
func (t *Transport) limit(cell int) int64 {
	if t.Limit == nil || t.Cost[cell] == Missing {
		return Unlimited
	}
	row, col := cell/len(t.Room), cell%len(t.Room)
	if t.Limit[cell] >= min(t.Count[row], t.Room[col]) {
		return Unlimited
	}
	return t.Limit[cell]
}
