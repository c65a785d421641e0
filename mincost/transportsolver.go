package mincost

import (
	"errors"
	"fmt"
	"math"
)

// TransportSolver solves transports exactly. It keeps its last basis: a transport of as many rows and columns as the
// last one is solved from there, whatever else changed. The zero value is ready.
//
// Where it can be told roughly what units are worth, most cells have no arc in the network: they cost too much to be
// taken. A solution of the others is one of all if the cells that have none would save nothing either; those that
// would get one.
type TransportSolver struct {
	rows, cols int
	solver     *Solver
	network    *Network
	arcs       []int32 // by cell: its arc, none if it never had one
	cells      []int32 // by arc: its cell, none if it leads to the sink
}

// Solve solves a transport: most units placed first if t.Alone is nil, and then least cost. When stop, which may be
// nil, says so, it returns the best solution so far, which is not marked optimal and never worse than Greedy's; the
// next Solve goes on from there.
func (s *TransportSolver) Solve(t *Transport, stop func() bool) (*Shipment, error) {
	span, err := t.check()
	if err != nil {
		return nil, err
	}
	alone := t.penalties(span)
	if s.solver == nil || s.rows != len(t.Count) || s.cols != len(t.Room) {
		worth, err := t.worth(alone, stop)
		if errors.Is(err, ErrStopped) {
			return t.greedy(alone), nil
		}
		if err != nil {
			return nil, fmt.Errorf("solving a transport: %w", err)
		}
		s.build(t, worth)
		s.update(t, alone, span.units)
		s.start(t, worth)
	} else {
		s.update(t, alone, span.units)
	}
	for {
		if err = s.solver.run(stop); err != nil || !s.admit(t) {
			break
		}
	}
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
func (s *TransportSolver) build(t *Transport, worth []int64) {
	s.rows, s.cols = len(t.Count), len(t.Room)
	s.network = NewNetwork(s.rows + s.cols + 1)
	arcs := len(t.Cost)
	if worth != nil {
		arcs = min(arcs, fewCells*s.cols)
	}
	s.network.Grow(arcs + s.rows + s.cols)
	s.arcs = make([]int32, len(t.Cost))
	for cell := range s.arcs {
		s.arcs[cell] = none
	}
	sink := s.rows + s.cols
	s.solver = NewSolver(s.network)
	s.cells = make([]int32, s.rows+s.cols, arcs+s.rows+s.cols)
	for arc := range s.cells {
		s.cells[arc] = none
	}
	for col := range s.cols {
		s.network.AddArc(s.rows+col, sink, 0, 0)
	}
	for row := range s.rows {
		s.network.AddArc(row, sink, Unlimited, 0)
	}
	if worth != nil {
		s.connectFew(t, worth)
		return
	}
	for cell, cost := range t.Cost {
		if cost != Missing {
			s.connect(t, cell)
		}
	}
}

// connect returns the arc of a cell, which gets one if it has none.
func (s *TransportSolver) connect(t *Transport, cell int) int32 {
	if s.arcs[cell] == none {
		s.arcs[cell] = int32(s.network.AddArc(cell/s.cols, s.rows+cell%s.cols, t.limit(cell), t.Cost[cell]))
		s.cells = append(s.cells, int32(cell))
	}
	return s.arcs[cell]
}

const (
	fewCells = 4  // of a column have an arc from the start: a guess, for which there is room
	doubt    = 64 // the part of what a unit gains at best by which its worth may well be wrong
)

// connectFew makes arcs of the cells that may be taken if units are worth about so much: those of the row that gains
// most in a column, and of others that would gain more if what their units are worth were a little wrong.
func (s *TransportSolver) connectFew(t *Transport, worth []int64) {
	best := make([]int64, s.cols) // a column is not needed where no row gains
	slack := make([]int64, s.rows)
	for row, w := range worth {
		least, most := w, int64(math.MinInt64)
		for col, cost := range t.Cost[row*s.cols : (row+1)*s.cols] {
			if cost != Missing {
				least, most = min(least, cost), max(most, cost)
				best[col] = max(best[col], w-cost)
			}
		}
		slack[row] = max(0, min(w, most)-least) / doubt
	}
	for row, w := range worth {
		first := row * s.cols
		for col, cost := range t.Cost[first : first+s.cols] {
			if cost != Missing && w-cost+slack[row] >= best[col] {
				s.connect(t, first+col)
			}
		}
	}
}

// admit gives an arc to the cells that have none, and would save something at the present prices.
func (s *TransportSolver) admit(t *Transport) (more bool) {
	if len(s.cells) == s.rows+s.cols+len(t.Cost) {
		return false
	}
	ends := s.solver.price[s.rows : s.rows+s.cols]
	for row, here := range s.solver.price[:s.rows] {
		first := row * s.cols
		arcs := s.arcs[first : first+s.cols]
		for col, cost := range t.Cost[first : first+s.cols] {
			if cost < ends[col]-here && arcs[col] == none {
				s.connect(t, first+col)
				more = true
			}
		}
	}
	return more
}

// update brings the network up to date. A cell that is missing now and was not keeps its arc, without capacity.
func (s *TransportSolver) update(t *Transport, alone []int64, units int64) {
	n, sink := s.network, s.rows+s.cols
	for arc, cell := range s.cells {
		switch {
		case cell == none:
		case t.Cost[cell] == Missing:
			n.SetCapacity(arc, 0)
		default:
			n.SetCost(arc, t.Cost[cell])
			n.SetCapacity(arc, t.limit(int(cell)))
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
	for arc, units := range s.solver.carrying() {
		if cell := s.cells[arc]; cell >= 0 {
			shipment.add(t, int(cell), units)
		}
	}
	shipment.sort()
	return shipment
}

// prove adds the dual solution: prices against the sink's. A column that nothing is in may have any price below 0,
// and is as well off without.
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
