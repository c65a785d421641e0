package mincost

import (
	"errors"
	"fmt"
)

// Certify checks that a is a matching of m with maximum size and minimum cost, and returns both. It only uses the dual
// values and does not depend on the algorithm.
func (a *Assignment) Certify(m Matrix) (size int, total int64, err error) {
	alone := m.alone()
	if len(a.Cols) != m.Rows || len(a.row) != m.Rows || len(a.col) != m.Cols || a.alone != alone {
		return 0, 0, errors.New("certifying assignment: it is for a different matrix")
	}
	used := make([]bool, m.Cols)
	for row, col := range a.Cols {
		u := a.row[row]
		if u > alone {
			return 0, 0, fmt.Errorf("certifying assignment: dual value of row %d exceeds the cost of omitting it", row)
		}
		if col < 0 {
			if u != alone {
				return 0, 0, fmt.Errorf("certifying assignment: row %d has no column and a dual value of %d, want %d", row,
					u, alone)
			}
			continue
		}
		cost, err := a.edge(m, used, row, col)
		if err != nil {
			return 0, 0, fmt.Errorf("certifying assignment: %w", err)
		}
		used[col] = true
		size++
		total += cost
	}
	return size, total, a.feasible(m, used)
}

// edge returns the cost of the edge assigned to a row. It returns an error if the edge does not exist, if its
// column is already in use, or if its cost does not match the dual values.
func (a *Assignment) edge(m Matrix, used []bool, row, col int) (int64, error) {
	if col >= m.Cols {
		return 0, fmt.Errorf("row %d has column %d out of %d", row, col, m.Cols)
	}
	cost, priced := m.Cost[row*m.Cols+col], a.row[row]+a.col[col]
	switch {
	case used[col]:
		return 0, fmt.Errorf("column %d is used twice", col)
	case cost == Missing:
		return 0, fmt.Errorf("row %d and column %d have no edge", row, col)
	case cost != priced:
		return 0, fmt.Errorf("cost of row %d and column %d is %d, want their dual values %d", row, col, cost, priced)
	}
	return cost, nil
}

// feasible checks the dual constraints: no edge costs less than the sum of its dual values, and columns without a
// row have a dual value of 0.
func (a *Assignment) feasible(m Matrix, used []bool) error {
	for col, v := range a.col {
		if v > 0 || !used[col] && v != 0 {
			return fmt.Errorf("certifying assignment: column %d has an invalid dual value of %d", col, v)
		}
	}
	for i, cost := range m.Cost {
		row, col := i/m.Cols, i%m.Cols
		if cost != Missing && cost < a.row[row]+a.col[col] {
			return fmt.Errorf("certifying assignment: cost of row %d and column %d is %d, below their dual values %d",
				row, col, cost, a.row[row]+a.col[col])
		}
	}
	return nil
}
