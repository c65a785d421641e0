package mincost

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

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

// sort puts lots in order.
func (s *Shipment) sort() {
	slices.SortFunc(s.Lots, func(a, b Lot) int {
		return cmp.Or(cmp.Compare(a.Row, b.Row), cmp.Compare(a.Col, b.Col))
	})
}

// Check checks that s is a solution of t, optimal or not: it keeps all limits, and adds up.
func (s *Shipment) Check(t *Transport) error {
	if _, err := t.check(); err != nil {
		return err
	}
	if _, _, err := s.tally(t); err != nil {
		return fmt.Errorf("checking a shipment: %w", err)
	}
	return nil
}

// Certify checks that s is a solution of t and that no other is better: its prices prove it.
func (s *Shipment) Certify(t *Transport) error {
	span, err := t.check()
	if err != nil {
		return err
	}
	if !s.Optimal || len(s.row) != len(t.Count) || len(s.col) != len(t.Room) || len(s.alone) != len(t.Count) {
		return errors.New("certifying a shipment: it is not an optimal one of this transport")
	}
	units, used, err := s.tally(t)
	if err != nil {
		return fmt.Errorf("certifying a shipment: %w", err)
	}
	if err := s.certifyEnds(t, span, used); err != nil {
		return fmt.Errorf("certifying a shipment: %w", err)
	}
	if err := s.certifyCells(t, units); err != nil {
		return fmt.Errorf("certifying a shipment: %w", err)
	}
	return nil
}

// certifyCells checks what is placed by the prices of its row and column.
func (s *Shipment) certifyCells(t *Transport, units []int64) error {
	for cell, cost := range t.Cost {
		row, col := cell/len(t.Room), cell%len(t.Room)
		reduced := cost + s.col[col] - s.row[row]
		if cost != Missing && (reduced > 0 && units[cell] > 0 ||
			reduced < 0 && (t.Limit == nil || units[cell] < t.Limit[cell])) {
			return fmt.Errorf("%d units of row %d in column %d are not at their price: %d too dear", units[cell], row,
				col, reduced)
		}
	}
	return nil
}

// certifyEnds checks the prices of rows and columns.
func (s *Shipment) certifyEnds(t *Transport, span span, used []int64) error {
	least := t.placingFirst(span)
	for row, left := range s.Left {
		alone, worth := s.alone[row], s.row[row]
		if !t.believes(row, alone, least) {
			return fmt.Errorf("row %d costs %d alone", row, alone)
		}
		if worth > alone && left < t.Count[row] || worth < alone && left > 0 || absolute(worth) > 2*maxPath {
			return fmt.Errorf("row %d leaves %d units at a price of %d, and being alone costs %d", row, left, worth,
				alone)
		}
	}
	for col, worth := range s.col {
		if worth < 0 || worth > 0 && used[col] < t.Room[col] || worth > 2*maxPath {
			return fmt.Errorf("column %d holds %d of %d at a price of %d", col, used[col], t.Room[col], worth)
		}
	}
	return nil
}

// believes reports whether being alone may cost a row so much: what t says, or more than placing anything could save.
func (t *Transport) believes(row int, alone, least int64) bool {
	if t.Alone != nil {
		return alone == t.Alone[row]
	}
	return alone >= least && alone <= maxPath
}

// tally checks that lots keep all limits and add up, and returns the units by cell and by column.
func (s *Shipment) tally(t *Transport) (units, used []int64, err error) {
	if len(s.Left) != len(t.Count) {
		return nil, nil, fmt.Errorf("it has %d rows of %d", len(s.Left), len(t.Count))
	}
	units, used = make([]int64, len(t.Cost)), make([]int64, len(t.Room))
	left := slices.Clone(t.Count)
	placed, cost := int64(0), int64(0)
	for _, lot := range s.Lots {
		if uint(lot.Row) >= uint(len(left)) || uint(lot.Col) >= uint(len(used)) || lot.Units <= 0 ||
			lot.Units > left[lot.Row] {
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
			return nil, nil, fmt.Errorf("column %d holds %d units of row %d, and %d in all, which is too many", lot.Col,
				units[cell], lot.Row, used[lot.Col])
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
