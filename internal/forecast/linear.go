package forecast

import (
	"errors"
	"math"
)

// gram adds the products of the columns of rows with width w to the upper triangle of g. These are the sums
// required for least squares.
func gram(g, rows []float64, w int) {
	i := 0
	for ; i+4*w <= len(rows); i += 4 * w {
		a, b, c, d := rows[i:i+w], rows[i+w:i+2*w], rows[i+2*w:i+3*w], rows[i+3*w:i+4*w]
		for j := range w {
			aj, bj, cj, dj := a[j], b[j], c[j], d[j]
			into := g[j*w+j : j*w+w]
			a, b, c, d := a[j:], b[j:], c[j:], d[j:]
			b, c, d = b[:len(a)], c[:len(a)], d[:len(a)]
			into = into[:len(a)]
			for k, ak := range a {
				into[k] += aj*ak + bj*b[k] + cj*c[k] + dj*d[k]
			}
		}
	}
	for ; i+w <= len(rows); i += w {
		row := rows[i : i+w]
		for j, v := range row {
			into := g[j*w : j*w+w]
			for k := j; k < w; k++ {
				into[k] += v * row[k]
			}
		}
	}
}

// errSingular means that columns are linearly dependent, which the penalty should prevent.
var errSingular = errors.New("matrix is not positive definite")

// solver solves ridge regressions of a fixed size.
type solver struct {
	p       int // number of columns; the first one is constant
	l, root []float64
}

func newSolver(p int) *solver {
	return &solver{p: p, l: make([]float64, p*p), root: make([]float64, p)}
}

// solve returns the coefficients that minimize the squared error plus the penalty times their squares, except that
// the first coefficient has no penalty. g is the Gram matrix of the columns, followed by the target as the last
// column.
func (s *solver) solve(g []float64, penalty float64) ([]float64, error) {
	p, w := s.p, s.p+1
	// Compute the lower triangle of l row by row, with l·lᵀ = g + penalty.
	for i := range p {
		li := s.l[i*p : i*p+i+1]
		for j := range i + 1 {
			lj := s.l[j*p : j*p+j+1]
			sum := g[j*w+i]
			if i == j && i > 0 {
				sum += penalty
			}
			for k, v := range lj[:j] {
				sum -= v * li[k]
			}
			if i > j {
				li[j] = sum / lj[j]
				continue
			}
			if !(sum > 0) {
				return nil, errSingular
			}
			li[i] = math.Sqrt(sum)
		}
	}
	for i := range p {
		sum := g[i*w+p]
		for k := range i {
			sum -= s.l[i*p+k] * s.root[k]
		}
		s.root[i] = sum / s.l[i*p+i]
	}
	b := make([]float64, p)
	for i := p - 1; i >= 0; i-- {
		sum := s.root[i]
		for k := i + 1; k < p; k++ {
			sum -= s.l[k*p+i] * b[k]
		}
		b[i] = sum / s.l[i*p+i]
	}
	return b, nil
}

// standard contains the parameters that standardize columns to mean 0 and deviation 1. Constant columns become 0.
type standard struct{ centre, scale []float64 }

// standardise standardizes the columns of rows with width w, except for the first one and the columns from p on.
func standardise(rows []float64, w, p int) standard {
	s := standard{centre: make([]float64, p), scale: make([]float64, p)}
	n := float64(len(rows) / w)
	for i := 0; i < len(rows); i += w {
		for j, v := range rows[i : i+p] {
			s.centre[j] += v
		}
	}
	for j := range s.centre {
		s.centre[j] /= n
	}
	for i := 0; i < len(rows); i += w {
		for j, v := range rows[i : i+p] {
			d := v - s.centre[j]
			s.scale[j] += d * d
		}
	}
	for j, v := range s.scale {
		deviation := math.Sqrt(v / n)
		if s.scale[j] = 0; deviation > 1e-9*(1+math.Abs(s.centre[j])) {
			s.scale[j] = 1 / deviation
		}
	}
	s.centre[0], s.scale[0] = 0, 1
	for i := 0; i < len(rows); i += w {
		row := rows[i : i+p]
		for j := range row {
			row[j] = (row[j] - s.centre[j]) * s.scale[j]
		}
	}
	return s
}

// raw converts coefficients of standardized columns to coefficients of the original columns.
func (s standard) raw(b []float64) []float64 {
	for j := 1; j < len(b); j++ {
		b[j] *= s.scale[j]
		b[0] -= b[j] * s.centre[j]
	}
	return b
}

func dot(a, b []float64) float64 {
	sum := 0.0
	b = b[:len(a)]
	for i, v := range a {
		sum += v * b[i]
	}
	return sum
}
