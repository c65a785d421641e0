package mincost

import (
	"fmt"
	"math"
	"slices"
)

// Missing is the cost of an edge that does not exist.
const Missing = math.MaxInt64

// MaxCost is the greatest absolute cost of an edge, which leaves room for sums of many.
const MaxCost = 1 << 40

// Matrix holds what it costs to match a row with a column.
type Matrix struct {
	Rows, Cols int
	Cost       []int64 // of row r and column c at r·Cols + c; Missing: they cannot be matched
}

// NewMatrix returns a matrix without edges.
func NewMatrix(rows, cols int) Matrix {
	return Matrix{Rows: rows, Cols: cols, Cost: slices.Repeat([]int64{Missing}, rows*cols)}
}

// Set makes an edge.
func (m *Matrix) Set(row, col int, cost int64) { m.Cost[row*m.Cols+col] = cost }

// Assignment is a matching of greatest size and, of those, of least cost, with the dual solution that proves it.
type Assignment struct {
	Cols  []int // by row: its column, -1 if it has none
	Size  int
	Total int64 // cost of all edges

	alone    int64   // what a row without a column costs: more than any exchange of edges can save
	row, col []int64 // dual values; those of columns are never above 0
}

// maxSide keeps sums of costs within int64.
const maxSide = 1 << 16

// Assign solves the assignment problem by shortest augmenting paths: rows enter one by one, each on the cheapest path
// of exchanges that ends in a free column, or leaves some row without one. It takes O(rows²·cols) steps at most. The
// same matrix always gives the same assignment; where several are optimal, rows and columns of lower numbers come
// first, as far as the paths go.
func Assign(m Matrix) (*Assignment, error) {
	alone, err := m.check()
	if err != nil {
		return nil, err
	}
	s := newSolver(m, alone)
	for row := range m.Rows {
		s.enter(row)
	}
	a := &Assignment{Cols: s.colOf, alone: alone, row: s.u, col: s.v}
	for row, col := range a.Cols {
		if col >= 0 {
			a.Size++
			a.Total += m.Cost[row*m.Cols+col]
		}
	}
	return a, nil
}

// check returns what a row without a column has to cost.
func (m *Matrix) check() (alone int64, err error) {
	if m.Rows < 0 || m.Cols < 0 || m.Rows > maxSide || m.Cols > maxSide || len(m.Cost) != m.Rows*m.Cols {
		return 0,
			fmt.Errorf(
				"assigning %d rows to %d columns with %d costs: want at most %d of each, and a cost for every pair",
				m.Rows, m.Cols, len(m.Cost), maxSide)
	}
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for i, c := range m.Cost {
		if c == Missing {
			continue
		}
		if c < -MaxCost || c > MaxCost {
			return 0, fmt.Errorf("assigning: row %d and column %d cost %d: want at most %d either way", i/m.Cols,
				i%m.Cols, c, int64(MaxCost))
		}
		least, most = min(least, c), max(most, c)
	}
	if least > most {
		return 1, nil // no edge at all
	}
	// A matching of one edge more costs at most this much more than one without it, whatever else changes.
	size := int64(min(m.Rows, m.Cols))
	return (max(most, 0)-min(least, 0))*size + most - least + 1, nil
}

// solver holds a partial assignment of rows that have entered, and dual values under which every edge has a reduced
// cost cost − u − v ≥ 0, and 0 where it is matched.
type solver struct {
	m     Matrix
	alone int64
	u, v  []int64
	colOf []int
	rowOf []int

	// Of the search for one path.
	dist []int64 // by column: the length of the shortest path to it
	from []int   // by column: the row before it on that path
	done []bool  // by column: its distance is final
	tree []int   // columns whose distance is final
}

func newSolver(m Matrix, alone int64) *solver {
	return &solver{
		m: m, alone: alone, u: make([]int64, m.Rows), v: make([]int64, m.Cols),
		colOf: slices.Repeat([]int{-1}, m.Rows), rowOf: slices.Repeat([]int{-1}, m.Cols),
		dist: make([]int64, m.Cols), from: make([]int, m.Cols), done: make([]bool, m.Cols),
	}
}

// enter adds a row: Dijkstra over reduced costs, from the row to a free column or to a row that does without one.
func (s *solver) enter(row int) {
	for col := range s.dist {
		s.dist[col], s.from[col], s.done[col] = Missing, -1, false
	}
	s.tree = s.tree[:0]
	s.relax(row, 0)
	loser, length := row, s.alone // the row that stays alone at the end of the best path of that kind
	for {
		col, near := s.nearest()
		if col < 0 || near >= length {
			s.settle(row, length)
			s.leave(row, loser)
			return
		}
		s.done[col] = true
		s.tree = append(s.tree, col)
		next := s.rowOf[col]
		if next < 0 {
			s.settle(row, near)
			s.augment(row, col)
			return
		}
		if end := near + s.alone - s.u[next]; end < length {
			loser, length = next, end
		}
		s.relax(next, near)
	}
}

// relax tries all edges of a row at a distance. A row that enters has a dual value of 0.
func (s *solver) relax(row int, distance int64) {
	costs := s.m.Cost[row*s.m.Cols : (row+1)*s.m.Cols]
	u := s.u[row]
	for col, cost := range costs {
		if cost == Missing || s.done[col] {
			continue
		}
		if d := distance + cost - u - s.v[col]; d < s.dist[col] {
			s.dist[col], s.from[col] = d, row
		}
	}
}

// nearest returns the column of least distance that is not final, free ones first, then those of lower numbers.
func (s *solver) nearest() (best int, least int64) {
	best, least = -1, Missing
	for col, d := range s.dist {
		if d == Missing || s.done[col] || d > least {
			continue
		}
		if d < least || s.rowOf[col] < 0 && s.rowOf[best] >= 0 {
			best, least = col, d
		}
	}
	return best, least
}

// settle updates the dual values after a search that ended at a distance.
func (s *solver) settle(row int, length int64) {
	s.u[row] += length
	for _, col := range s.tree {
		if slack := length - s.dist[col]; slack > 0 {
			s.v[col] -= slack
			if next := s.rowOf[col]; next >= 0 {
				s.u[next] += slack
			}
		}
	}
}

// augment exchanges the edges of the path that ends in a column.
func (s *solver) augment(row, col int) {
	for {
		owner := s.from[col]
		given := s.colOf[owner]
		s.colOf[owner], s.rowOf[col] = col, owner
		if owner == row {
			return
		}
		col = given
	}
}

// leave exchanges the edges of the path to the row that stays alone.
func (s *solver) leave(row, loser int) {
	if loser == row {
		return
	}
	col := s.colOf[loser]
	s.colOf[loser] = -1
	s.augment(row, col)
}
