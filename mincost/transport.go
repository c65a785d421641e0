package mincost

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Transport is the problem of placing units of several kinds, the rows, into rooms, the columns. Units of a row are alike,
// as are the places of a column, so ten thousand equal jobs are one row with a count.
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

// Shipment is a solution of a transport, with the dual solution that proves it if it is optimal.
type Shipment struct {
	Lots    []Lot   // by row, then by column; each of at least one unit
	Left    []int64 // by row: units that are not placed
	Placed  int64   // units that are
	Cost    int64   // of the lots
	Optimal bool    // false: the solve was stopped, and this is the best that was known

	row, col []int64 // by row and column, if optimal: what one unit more, and one place more, would be worth
	alone    []int64
}

// maxUnits keeps sums of what a transport has to place within int64.
const maxUnits = 1 << 40

// SolveTransport solves a transport from scratch, after exact aggregation of rows that are alike and of columns that are.
// When stop, which may be nil, says so, the best solution so far is returned, which is never worse than Greedy's.
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
func (t *Transport) check() (span, error) {
	var s span
	rows, cols := len(t.Count), len(t.Room)
	if rows > maxNodes/4 || cols > maxNodes/4 || rows*cols > maxArcs/2 || len(t.Cost) != rows*cols || t.Limit != nil && len(t.Limit) != len(t.Cost) || t.Alone != nil && len(t.Alone) != rows {
		return s, fmt.Errorf("checking a transport of %d rows and %d columns: it has %d costs, %d limits and %d costs of being alone", rows, cols, len(t.Cost), len(t.Limit), len(t.Alone))
	}
	for row, count := range t.Count {
		if count < 0 || count > maxUnits-s.units {
			return s, fmt.Errorf("checking a transport: row %d has %d units: want at most %d of all rows together", row, count, int64(maxUnits))
		}
		s.units += count
	}
	for col, room := range t.Room {
		if room < 0 {
			return s, fmt.Errorf("checking a transport: column %d has room for %d", col, room)
		}
	}
	for cell, limit := range t.Limit {
		if limit < 0 {
			return s, fmt.Errorf("checking a transport: row %d has a limit of %d in column %d", cell/cols, limit, cell%cols)
		}
	}
	for row, cost := range t.Alone {
		if absolute(cost) > MaxCost {
			return s, fmt.Errorf("checking a transport: row %d costs %d where it is alone: want at most %d either way", row, cost, int64(MaxCost))
		}
	}
	for _, cost := range t.Cost {
		if cost != Missing {
			s.least, s.most = min(s.least, cost), max(s.most, cost)
		}
	}
	if limit := min(MaxCost, math.MaxInt64/max(s.units, 1)); s.least < -limit || s.most > limit {
		return s, fmt.Errorf("checking a transport: costs go from %d to %d: want at most %d either way, for %d units", s.least, s.most, limit, s.units)
	}
	return s, nil
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

// newShipment returns a shipment that leaves everything.
func newShipment(t *Transport, alone []int64) *Shipment {
	return &Shipment{Left: slices.Clone(t.Count), alone: alone}
}

// add puts units of a row into a column.
func (s *Shipment) add(t *Transport, cell int, units int64) {
	lot := Lot{Row: cell / len(t.Room), Col: cell % len(t.Room), Units: units}
	s.Lots = append(s.Lots, lot)
	s.Left[lot.Row] -= units
	s.Placed += units
	s.Cost += units * t.Cost[cell]
}

// penalised returns what a shipment costs together with what it leaves.
func (s *Shipment) penalised() float64 {
	sum := float64(s.Cost)
	for row, left := range s.Left {
		sum += float64(left) * float64(s.alone[row])
	}
	return sum
}

// Certify checks that s is a solution of t and that no other is better: its prices prove it.
func (s *Shipment) Certify(t *Transport) error {
	span, err := t.check()
	if err != nil {
		return err
	}
	if !s.Optimal || len(s.Left) != len(t.Count) || len(s.row) != len(t.Count) || len(s.col) != len(t.Room) || len(s.alone) != len(t.Count) {
		return errors.New("certifying a shipment: it is not an optimal one of this transport")
	}
	units, used, err := s.tally(t)
	if err != nil {
		return fmt.Errorf("certifying a shipment: %w", err)
	}
	least := t.placingFirst(span)
	for row, left := range s.Left {
		alone, worth := s.alone[row], s.row[row]
		if t.Alone != nil && alone != t.Alone[row] || t.Alone == nil && alone < least {
			return fmt.Errorf("certifying a shipment: row %d costs %d alone", row, alone)
		}
		if worth > alone && left < t.Count[row] || worth < alone && left > 0 {
			return fmt.Errorf("certifying a shipment: row %d leaves %d units at a price of %d, and being alone costs %d", row, left, worth, alone)
		}
	}
	for col, worth := range s.col {
		if worth < 0 || worth > 0 && used[col] < t.Room[col] {
			return fmt.Errorf("certifying a shipment: column %d holds %d of %d at a price of %d", col, used[col], t.Room[col], worth)
		}
	}
	for cell, cost := range t.Cost {
		if cost == Missing {
			continue
		}
		row, col := cell/len(t.Room), cell%len(t.Room)
		reduced := cost + s.col[col] - s.row[row]
		if reduced > 0 && units[cell] > 0 || reduced < 0 && (t.Limit == nil || units[cell] < t.Limit[cell]) {
			return fmt.Errorf("certifying a shipment: %d units of row %d in column %d are not at their price: %d too dear", units[cell], row, col, reduced)
		}
	}
	return nil
}

// tally checks that lots keep all limits and add up, and returns the units by cell and by column.
func (s *Shipment) tally(t *Transport) (units, used []int64, err error) {
	units, used = make([]int64, len(t.Cost)), make([]int64, len(t.Room))
	left := slices.Clone(t.Count)
	placed, cost := int64(0), int64(0)
	for _, lot := range s.Lots {
		if uint(lot.Row) >= uint(len(left)) || uint(lot.Col) >= uint(len(used)) || lot.Units <= 0 {
			return nil, nil, fmt.Errorf("%d units of row %d in column %d", lot.Units, lot.Row, lot.Col)
		}
		cell := lot.Row*len(used) + lot.Col
		units[cell] += lot.Units
		used[lot.Col] += lot.Units
		left[lot.Row] -= lot.Units
		placed += lot.Units
		cost += lot.Units * t.Cost[cell]
		switch {
		case t.Cost[cell] == Missing:
			return nil, nil, fmt.Errorf("row %d cannot be in column %d", lot.Row, lot.Col)
		case t.Limit != nil && units[cell] > t.Limit[cell], used[lot.Col] > t.Room[lot.Col]:
			return nil, nil, fmt.Errorf("column %d holds %d units of row %d, and %d in all, which is too many", lot.Col, units[cell], lot.Row, used[lot.Col])
		}
	}
	for row := range left {
		if left[row] < 0 || left[row] != s.Left[row] {
			return nil, nil, fmt.Errorf("row %d leaves %d units, said to leave %d", row, left[row], s.Left[row])
		}
	}
	if placed != s.Placed || cost != s.Cost {
		return nil, nil, fmt.Errorf("%d units cost %d, said to be %d at %d", placed, cost, s.Placed, s.Cost)
	}
	return units, used, nil
}
