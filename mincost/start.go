package mincost

import (
	"cmp"
	"math"
	"slices"
)

// start makes the first tree. Where it is thought to be known what units are worth, columns are filled, those first
// in which a row gains most, with units of the row that gains most there and has some left, and of the next if these
// were its last. A full column hangs at the row that filled it, one that is not full at the sink, and a row at the
// column that took its last units: so two rows that share a column hang together, at prices at which neither would
// rather have all of it. Only how many pivots are left to do depends on what units are thought to be worth.
func (s *TransportSolver) start(t *Transport, worth []int64) {
	s.solver.extend()
	s.solver.near = worth != nil
	f := filling{
		s: s, t: t, worth: worth, left: slices.Clone(t.Count), hung: make([]bool, s.rows+s.cols),
		owner: make([]int32, s.cols),
	}
	if worth != nil {
		for _, g := range f.order() {
			f.fill(g.col)
		}
		for row := range s.rows {
			f.share(row)
		}
	}
	for col := range s.cols {
		if !f.hung[s.rows+col] {
			f.hang(s.rows+col, int32(col))
		}
	}
	for row := range s.rows {
		if !f.hung[row] {
			f.hang(row, int32(s.cols+row))
		}
	}
}

// filling is a first tree while it grows.
type filling struct {
	s     *TransportSolver
	t     *Transport
	worth []int64
	left  []int64 // units by row
	hung  []bool  // nodes: rows, then columns
	owner []int32 // by column: the row at which it hangs
}

func (f *filling) hang(node int, arc int32) {
	f.s.solver.seed(node, int(arc))
	f.hung[node] = true
}

// gaining is a column, with what is gained most there.
type gaining struct {
	gain int64
	col  int32
}

// order lists the columns that are any use, by what is gained most there, most first.
func (f *filling) order() []gaining {
	gain := make([]int64, f.s.cols)
	for col := range gain {
		gain[col] = math.MinInt64
	}
	for row, w := range f.worth {
		for col, cost := range f.t.Cost[row*f.s.cols : (row+1)*f.s.cols] {
			if cost != Missing {
				gain[col] = max(gain[col], w-cost)
			}
		}
	}
	sorted := make([]gaining, 0, f.s.cols)
	for col, g := range gain {
		f.owner[col] = none
		if g > math.MinInt64 && f.s.network.capacity[col] > 0 {
			sorted = append(sorted, gaining{g, int32(col)})
		}
	}
	slices.SortFunc(sorted, func(a, b gaining) int {
		if a.gain != b.gain {
			return cmp.Compare(b.gain, a.gain)
		}
		return cmp.Compare(a.col, b.col)
	})
	return sorted
}

// fill fills a column.
func (f *filling) fill(col int32) {
	s := f.s
	for room := s.network.capacity[col]; ; {
		best, most := none, int64(math.MinInt64)
		for row, left := range f.left {
			if left == 0 {
				continue
			}
			cost := f.t.Cost[row*s.cols+int(col)]
			if gain := f.worth[row] - cost; cost != Missing && gain > most && cost < s.network.cost[s.cols+row] {
				best, most = row, gain
			}
		}
		if best == none {
			return
		}
		arc := s.connect(f.t, best*s.cols+int(col))
		left, limit := f.left[best], s.network.capacity[arc]
		switch {
		case limit < min(left, room)+1: // it would be full itself
			return
		case room <= left:
			f.left[best] -= room
			f.owner[col] = int32(best)
			f.hang(s.rows+int(col), arc)
			s.solver.state[col] = atCapacity
			return
		}
		f.left[best] = 0
		room -= left
		f.hang(best, arc)
	}
}

// share hangs a row whose last units have filled a column at one where it would take part at least cost. At the sink
// it would seem to cost as much as units that are left alone, and any column would look better.
func (f *filling) share(row int) {
	if f.hung[row] || f.left[row] > 0 {
		return
	}
	s := f.s
	best, least := none, int64(math.MaxInt64)
	for col, cost := range f.t.Cost[row*s.cols : (row+1)*s.cols] {
		owner := f.owner[col]
		if cost == Missing || owner == int32(row) || s.network.capacity[col] == 0 {
			continue
		}
		loss := cost - f.worth[row]
		if owner != none {
			loss += f.worth[owner] - f.t.Cost[int(owner)*s.cols+col]
		}
		if loss < least && f.t.limit(row*s.cols+col) > 0 && !f.below(s.rows+col, row) {
			best, least = col, loss
		}
	}
	if best != none {
		f.hang(row, s.connect(f.t, row*s.cols+best))
	}
}

// below reports whether a node hangs somewhere below another.
func (f *filling) below(node, above int) bool {
	t := &f.s.solver.tree
	for at := int32(node); at != t.root(); at = t.place[at].parent {
		if at == int32(above) {
			return true
		}
	}
	return false
}
