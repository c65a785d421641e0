package mincost

import (
	"math"
	"slices"
)

// Missing is the cost of an edge that does not exist.
const Missing = math.MaxInt64

// MaxCost is the maximum absolute cost of an edge. It is small enough to add up many costs.
const MaxCost = 1 << 40

// Matrix contains the costs of matching rows with columns.
type Matrix struct {
	Rows, Cols int
	Cost       []int64 // cost of row r and column c at r·Cols + c; Missing if they cannot be matched
}

// NewMatrix returns a matrix without edges.
func NewMatrix(rows, cols int) Matrix {
	return Matrix{Rows: rows, Cols: cols, Cost: slices.Repeat([]int64{Missing}, rows*cols)}
}

// Set sets the cost of an edge.
func (m *Matrix) Set(row, col int, cost int64) { m.Cost[row*m.Cols+col] = cost }

// Assignment is a matching of maximum size and minimum cost, with a dual solution that proves its optimality.
type Assignment struct {
	Cols []int // column of each row; -1 if it has none

	alone    int64   // cost of a row without a column, higher than any saving by an exchange of edges
	row, col []int64 // dual values; those of columns are never positive
}

// Assign solves the assignment problem with shortest augmenting paths. Rows are added one by one, each on the
// cheapest path of exchanges to a free column, or to a row that remains without a column. It takes at most
// O(rows²·cols) steps. The result is deterministic. If several assignments are optimal, the paths prefer rows and
// columns with lower numbers. Costs must be at most [MaxCost] in magnitude, and the matrix must have at most 65,536
// rows and columns, so that sums of costs fit into an int64.
func Assign(m Matrix) *Assignment {
	alone := m.alone()
	s := newSolver(m, alone)
	for row := range m.Rows {
		s.enter(row)
	}
	return &Assignment{Cols: s.colOf, alone: alone, row: s.u, col: s.v}
}

// alone returns the cost of a row without a column.
func (m *Matrix) alone() int64 {
	least, most := int64(math.MaxInt64), int64(math.MinInt64)
	for _, c := range m.Cost {
		if c != Missing {
			least, most = min(least, c), max(most, c)
		}
	}
	if least > most {
		return 1 // no edges
	}
	// Adding an edge to a matching increases its cost by at most this amount, including all exchanges.
	size := int64(min(m.Rows, m.Cols))
	return (max(most, 0)-min(least, 0))*size + most - least + 1
}

// solver contains a partial assignment of the rows added so far. Its dual values u and v satisfy cost − u − v ≥ 0
// for every edge, and = 0 for matched edges.
type solver struct {
	m     Matrix
	alone int64
	u, v  []int64
	colOf []int
	rowOf []int

	// State of the search for one path.
	dist []int64 // by column: length of the shortest path
	from []int   // by column: previous row on that path
	done []bool  // by column: distance is final
	tree []int   // columns with final distances
}

func newSolver(m Matrix, alone int64) *solver {
	return &solver{
		m: m, alone: alone, u: make([]int64, m.Rows), v: make([]int64, m.Cols),
		colOf: slices.Repeat([]int{-1}, m.Rows), rowOf: slices.Repeat([]int{-1}, m.Cols),
		dist: make([]int64, m.Cols), from: make([]int, m.Cols), done: make([]bool, m.Cols),
	}
}

// enter adds a row. It searches for the shortest path by reduced costs (Dijkstra) from the row to a free column, or
// to a row that will have no column.
func (s *solver) enter(row int) {
	for col := range s.dist {
		s.dist[col], s.from[col], s.done[col] = Missing, -1, false
	}
	s.tree = s.tree[:0]
	s.relax(row, 0)
	loser, length := row, s.alone // row without a column at the end of the best path of this kind
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

// relax updates the distances over all edges of a row. A row that is being added has a dual value of 0.
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

// nearest returns the column with the smallest distance that is not final. It prefers free columns, then lower
// numbers.
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

// settle updates the dual values after a search with a path of the given length.
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

// leave exchanges the edges of the path to the row that will have no column.
func (s *solver) leave(row, loser int) {
	if loser == row {
		return
	}
	col := s.colOf[loser]
	s.colOf[loser] = -1
	s.augment(row, col)
}
