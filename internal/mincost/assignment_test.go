package mincost_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/kubenergy/kubenergy/internal/mincost"
)

// drawMatrix generates a matrix of arbitrary shape with missing edges and many equal costs.
func drawMatrix(t *rapid.T, most int) mincost.Matrix {
	m := mincost.NewMatrix(rapid.IntRange(0, most).Draw(t, "rows"), rapid.IntRange(0, most).Draw(t, "cols"))
	span := rapid.SampledFrom([]int64{1, 3, 1000, mincost.MaxCost}).Draw(t, "span")
	share := rapid.Float64Range(0, 1).Draw(t, "share")
	for i := range m.Cost {
		if rapid.Float64Range(0, 1).Draw(t, "exists") <= share {
			m.Cost[i] = rapid.Int64Range(-span, span).Draw(t, "cost")
		}
	}
	return m
}

// best evaluates every matching and returns the maximum size and the minimum cost for this size.
func best(m mincost.Matrix, row int, used []bool) (size int, cost int64) {
	if row == m.Rows {
		return 0, 0
	}
	size, cost = best(m, row+1, used)
	for col := range m.Cols {
		c := m.Cost[row*m.Cols+col]
		if used[col] || c == mincost.Missing {
			continue
		}
		used[col] = true
		n, rest := best(m, row+1, used)
		used[col] = false
		if n+1 > size || n+1 == size && rest+c < cost {
			size, cost = n+1, rest+c
		}
	}
	return size, cost
}

// certified is an assignment with a valid certificate.
type certified struct {
	*mincost.Assignment
	size  int
	total int64
}

func assign(t rapid.TB, m mincost.Matrix) certified {
	t.Helper()
	a := mincost.Assign(m)
	size, total, err := a.Certify(m)
	if err != nil {
		t.Fatalf("%v\n%+v\n%+v", err, m, a)
	}
	return certified{a, size, total}
}

func TestAssignIsOptimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := drawMatrix(t, 6)
		a := assign(t, m)
		size, cost := best(m, 0, make([]bool, m.Cols))
		if a.size != size || a.total != cost {
			t.Fatalf("got %d edges at a cost of %d, want %d at %d: %+v", a.size, a.total, size, cost, m)
		}
	})
}

// TestAssignSevenBySeven checks full matrices of the largest size that brute force can solve.
func TestAssignSevenBySeven(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 7))
	for range 40 {
		m := mincost.NewMatrix(7, 7)
		for i := range m.Cost {
			if random.IntN(5) > 0 {
				m.Cost[i] = random.Int64N(41) - 20
			}
		}
		a := assign(t, m)
		if size, cost := best(m, 0, make([]bool, 7)); a.size != size || a.total != cost {
			t.Fatalf("got %d edges at a cost of %d, want %d at %d", a.size, a.total, size, cost)
		}
	}
}

// TestAssignLarge checks the certificates of large assignments, and that size and cost do not depend on the order
// of rows and columns.
func TestAssignLarge(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, shape := range [][2]int{{100, 50}, {50, 100}, {120, 120}, {1, 300}, {300, 1}} {
		m := mincost.NewMatrix(shape[0], shape[1])
		for i := range m.Cost {
			if random.IntN(3) > 0 {
				m.Cost[i] = random.Int64N(2*mincost.MaxCost) - mincost.MaxCost
			}
		}
		a := assign(t, m)
		turned := mincost.NewMatrix(m.Cols, m.Rows)
		for row := range m.Rows {
			for col := range m.Cols {
				turned.Set(m.Cols-1-col, m.Rows-1-row, m.Cost[row*m.Cols+col])
			}
		}
		if b := assign(t, turned); a.size != b.size || a.total != b.total {
			t.Errorf("%v: got %d edges at a cost of %d, transposed %d at %d", shape, a.size, a.total, b.size, b.total)
		}
	}
}

func TestCertifyRefuses(t *testing.T) {
	m := mincost.NewMatrix(2, 2)
	m.Set(0, 0, 1)
	m.Set(0, 1, 2)
	m.Set(1, 0, 1)
	a := assign(t, m)
	if !slices.Equal(a.Cols, []int{1, 0}) || a.total != 3 {
		t.Fatalf("unexpected assignment: %+v", a)
	}
	for name, spoil := range map[string]func(a *mincost.Assignment, m *mincost.Matrix){
		"missing edge":      func(a *mincost.Assignment, _ *mincost.Matrix) { a.Cols[0] = -1 },
		"column used twice": func(a *mincost.Assignment, _ *mincost.Matrix) { a.Cols[0] = 0 },
		"invalid column":    func(a *mincost.Assignment, _ *mincost.Matrix) { a.Cols[1] = 2 },
		"nonexistent edge":  func(a *mincost.Assignment, _ *mincost.Matrix) { a.Cols[0], a.Cols[1] = 0, 1 },
		"different cost":    func(_ *mincost.Assignment, m *mincost.Matrix) { m.Set(0, 1, 1) },
		"cheaper edge":      func(_ *mincost.Assignment, m *mincost.Matrix) { m.Set(1, 1, -2) },
		"different matrix":  func(_ *mincost.Assignment, m *mincost.Matrix) { *m = mincost.NewMatrix(3, 2) },
	} {
		other := m
		other.Cost = slices.Clone(m.Cost)
		spoilt := *assign(t, m).Assignment
		spoil(&spoilt, &other)
		if _, _, err := spoilt.Certify(other); err == nil {
			t.Errorf("%s: Certify() accepted an invalid assignment", name)
		}
	}
}

func BenchmarkAssign(b *testing.B) {
	for _, shape := range [][2]int{{100, 50}, {100, 1000}, {300, 300}} {
		random := rand.New(rand.NewPCG(3, 4))
		m := mincost.NewMatrix(shape[0], shape[1])
		for i := range m.Cost {
			m.Cost[i] = random.Int64N(1 << 30)
		}
		b.Run(fmt.Sprint(shape[0], "x", shape[1]), func(b *testing.B) {
			for b.Loop() {
				mincost.Assign(m)
			}
		})
	}
}

func ExampleAssign() {
	m := mincost.NewMatrix(2, 3)
	m.Set(0, 0, 4)
	m.Set(0, 1, 1)
	m.Set(1, 1, 2)
	m.Set(1, 2, 7)
	fmt.Println(mincost.Assign(m).Cols)
	// Output: [0 1]
}
