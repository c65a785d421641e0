package mincost

import (
	"cmp"
	"slices"
)

// An offer is the row that a column is best for, and what a unit there costs above what it is worth: less than 0.
type offer struct {
	cost     int64
	row, col int32
}

// start makes the first tree. Columns are filled with the rows they are best for, those that gain most first, as long as
// the rows have units; a full one hangs at its row, one that is not full at the sink, and a row at the column that took
// its last units, or, if there are some left, at the sink. Only how many pivots are left to do depends on what units are
// thought to be worth.
func (s *TransportSolver) start(t *Transport, worth []int64) {
	hung := make([]bool, s.rows+s.cols)
	hang := func(node int, arc int32) {
		s.solver.seed(node, int(arc))
		hung[node] = true
	}
	s.solver.extend()
	s.solver.near = worth != nil
	left := slices.Clone(t.Count)
	for _, o := range t.offers(worth) {
		arc := s.arcs[int(o.row)*s.cols+int(o.col)]
		room, limit := s.network.capacity[o.col], s.network.capacity[arc]
		switch {
		case room == 0:
		case room <= left[o.row] && room < limit: // full
			left[o.row] -= room
			hang(s.rows+int(o.col), arc)
			s.solver.state[o.col] = atCapacity
		case left[o.row] > 0 && left[o.row] < min(room, limit): // the row's last units
			left[o.row] = 0
			hang(int(o.row), arc)
		}
	}
	for col := range s.cols {
		if !hung[s.rows+col] {
			hang(s.rows+col, int32(col))
		}
	}
	for row := range s.rows {
		if !hung[row] {
			hang(row, int32(s.cols+row))
		}
	}
}

// offers lists for each column the row that gains most there, if any does; most first.
func (t *Transport) offers(worth []int64) []offer {
	offers := make([]offer, len(t.Room))
	for col := range offers {
		offers[col] = offer{row: none, col: int32(col)}
	}
	for row, w := range worth {
		for col, cost := range t.Cost[row*len(t.Room) : (row+1)*len(t.Room)] {
			if o := &offers[col]; cost != Missing && cost-w < o.cost {
				o.cost, o.row = cost-w, int32(row)
			}
		}
	}
	offers = slices.DeleteFunc(offers, func(o offer) bool { return o.row == none })
	slices.SortFunc(offers, func(a, b offer) int { return cmp.Or(cmp.Compare(a.cost, b.cost), cmp.Compare(a.col, b.col)) })
	return offers
}
