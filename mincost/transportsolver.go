package mincost

import (
	"errors"
	"fmt"
)

// TransportSolver solves transports exactly. It keeps its last basis: a transport of as many rows and columns as the last
// one is solved from there, whatever else changed. The zero value is ready.
type TransportSolver struct {
	rows, cols int
	solver     *Solver
	network    *Network
	arcs       []int32 // by cell: its arc, none if it never had one
	cells      []int32 // by arc: its cell, none if it leads to the sink
}

// Solve solves a transport: most units placed first if t.Alone is nil, and then least cost. When stop, which may be nil,
// says so, it returns the best solution so far, which is not marked optimal and never worse than Greedy's; the next Solve
// goes on from there.
func (s *TransportSolver) Solve(t *Transport, stop func() bool) (*Shipment, error) {
	span, err := t.check()
	if err != nil {
		return nil, err
	}
	alone := t.penalties(span)
	first := s.solver == nil || s.rows != len(t.Count) || s.cols != len(t.Room)
	if first {
		s.build(len(t.Count), len(t.Room), len(t.Cost))
	}
	s.update(t, alone, span.units)
	if first {
		s.start(t, t.worth(alone, stop))
	}
	err = s.solver.run(stop)
	stopped := errors.Is(err, ErrStopped)
	switch {
	case err != nil && !stopped:
		return nil, fmt.Errorf("solving a transport: %w", err)
	case !stopped:
		shipment := s.shipment(t, alone)
		s.prove(shipment)
		return shipment, nil
	}
	greedy := t.greedy(alone)
	if !s.solver.feasible() {
		return greedy, nil
	}
	if reached := s.shipment(t, alone); reached.penalised() <= greedy.penalised() {
		return reached, nil
	}
	return greedy, nil
}

// build makes the network: rows, columns, and a sink that columns and units left alone lead to. Arcs to the sink come
// first: that of a column has its number, and that of a row stands after those of all columns.
func (s *TransportSolver) build(rows, cols, cells int) {
	s.rows, s.cols = rows, cols
	s.network = NewNetwork(rows + cols + 1)
	s.network.Grow(cells + rows + cols)
	s.arcs = make([]int32, cells)
	for cell := range s.arcs {
		s.arcs[cell] = none
	}
	sink := rows + cols
	s.solver = NewSolver(s.network)
	s.cells = make([]int32, rows+cols, cells+rows+cols)
	for arc := range s.cells {
		s.cells[arc] = none
	}
	for col := range cols {
		s.network.AddArc(rows+col, sink, 0, 0)
	}
	for row := range rows {
		s.network.AddArc(row, sink, Unlimited, 0)
	}
}

// update brings the network up to date. A cell that is missing now and was not keeps its arc, without capacity.
func (s *TransportSolver) update(t *Transport, alone []int64, units int64) {
	n, sink := s.network, s.rows+s.cols
	for cell, cost := range t.Cost {
		arc := s.arcs[cell]
		switch {
		case cost == Missing && arc >= 0:
			n.SetCapacity(int(arc), 0)
		case cost == Missing:
		case arc >= 0:
			n.SetCost(int(arc), cost)
			n.SetCapacity(int(arc), t.limit(cell))
		default:
			s.arcs[cell] = int32(n.AddArc(cell/s.cols, s.rows+cell%s.cols, t.limit(cell), cost))
			s.cells = append(s.cells, int32(cell))
		}
	}
	for col, room := range t.Room {
		if room > units { // never full, so it has no price
			room = Unlimited
		}
		n.SetCapacity(col, room)
	}
	for row, cost := range alone {
		n.SetCost(s.cols+row, cost)
		n.SetSupply(row, t.Count[row])
	}
	n.SetSupply(sink, -units)
}

// shipment reads the solver's present flow.
func (s *TransportSolver) shipment(t *Transport, alone []int64) *Shipment {
	shipment := newShipment(t, alone)
	s.solver.carry()
	for _, arc := range s.solver.used {
		if cell := s.cells[arc]; cell >= 0 {
			shipment.add(t, int(cell), s.solver.solved.Units[arc])
		}
	}
	shipment.sort()
	return shipment
}

// prove adds the dual solution: prices against the sink's. A column that nothing is in may have any price below 0, and is
// as well off without.
func (s *TransportSolver) prove(shipment *Shipment) {
	price := s.solver.price
	sink := price[s.rows+s.cols]
	shipment.Optimal = true
	shipment.row, shipment.col = make([]int64, s.rows), make([]int64, s.cols)
	for row := range s.rows {
		shipment.row[row] = sink - price[row]
	}
	for col := range s.cols {
		shipment.col[col] = max(0, sink-price[s.rows+col])
	}
}
