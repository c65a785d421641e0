package energy

import "math"

// curveEdges divides utilisation into bins that are narrow at low load, where idle power is determined. A
// powerCurve can bend only at these edges.
var curveEdges = [curveBins + 1]float64{
	0, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1,
}

const (
	curveBins   = 18
	maxTerms    = 8    // a constant, a line and six bends, which is enough for measured curves
	minVariance = 1e-5 // variance of utilisation (±0.3 %) below which no slope is fitted

	bendMass = 6.0  // minimum number of samples on either side of a bend
	bendUp   = 4.0  // minimum gain of an upward bend, in variances of the noise
	bendDown = 10.0 // minimum gain of a downward bend, in variances of the noise
)

// A powerCurve is power as a function of utilisation. It stores the values at curveEdges, interpolates linearly in
// between and never decreases.
type powerCurve [curveBins + 1]float64

// at returns the power at utilisation u in [0,1].
func (c *powerCurve) at(u float64) float64 { return c.within(binOf(u), u) }

// within is like at for a utilisation u in the given bin.
func (c *powerCurve) within(bin int, u float64) float64 {
	lo, hi := curveEdges[bin], curveEdges[bin+1]
	return c[bin] + (c[bin+1]-c[bin])*(u-lo)/(hi-lo)
}

// binOf returns the bin of u in [0,1]. An edge belongs to the bin above it.
func binOf(u float64) int {
	i := 0
	for i < curveBins-1 && u >= curveEdges[i+1] {
		i++
	}
	return i
}

// moments contains the number of samples of utilisation u and power p, and weighted sums over them.
type moments struct{ n, w, u, uu, p, up float64 }

func (m *moments) add(n, w, u, p float64) {
	m.n += n
	m.w += w
	m.u += w * u
	m.uu += w * u * u
	m.p += w * p
	m.up += w * u * p
}

func (m *moments) merge(o *moments) {
	m.n += o.n
	m.w += o.w
	m.u += o.u
	m.uu += o.uu
	m.p += o.p
	m.up += o.up
}

// A bendRegression fits
//
//	P(u) = a + b·u + Σ cⱼ·max(0, u − edgeⱼ)
//
// by weighted least squares. Bends are added one by one, the one with the largest gain first, while a bend
// explains more than noise would. With a bend at every edge, the fit would follow the noise, and most of all near
// idle, where accuracy matters. Upward bends are common because frequency and voltage rise with load. Downward
// bends, caused by sleep states, are accepted unless power would decrease.
//
// Because bends are at the edges of bins, sums by bin are sufficient. The Cholesky factor of the normal equations
// grows by one row per term, so evaluating a candidate takes tens of operations.
type bendRegression struct {
	tail  [curveBins + 1]moments // tail[j] sums all samples at or above edge j
	terms [maxTerms]int          // -1 is the constant, other values are edges
	chol  [maxTerms][maxTerms]float64
	z     [maxTerms]float64 // chol⁻¹ · right side
	n     int
}

const constant = -1

// sum loads the samples, aggregated by bin.
func (r *bendRegression) sum(bins *[curveBins]moments) {
	r.tail[curveBins] = moments{}
	for j := curveBins - 1; j >= 0; j-- {
		r.tail[j] = r.tail[j+1]
		r.tail[j].merge(&bins[j])
	}
}

// inner returns the weighted inner product of two terms. right returns the inner product of a term and power.
func (r *bendRegression) inner(i, j int) float64 {
	if i > j {
		i, j = j, i
	}
	if j == constant {
		return r.tail[0].w
	}
	s, k := &r.tail[j], curveEdges[j]
	if i == constant {
		return s.u - k*s.w
	}
	return s.uu - (curveEdges[i]+k)*s.u + curveEdges[i]*k*s.w
}

func (r *bendRegression) right(j int) float64 {
	if j == constant {
		return r.tail[0].p
	}
	return r.tail[j].up - curveEdges[j]*r.tail[j].p
}

// try computes the row that term j would add to the Cholesky factor. Adding the term would reduce the sum of
// squares by z². The sign of z is the sign of the term's coefficient; z is 0 if the term depends linearly on the
// existing ones.
func (r *bendRegression) try(j int) (row [maxTerms]float64, z float64) {
	own := r.inner(j, j)
	left, right := own, r.right(j)
	for i := range r.n {
		v := r.inner(r.terms[i], j)
		for k := range i {
			v -= r.chol[i][k] * row[k]
		}
		v /= r.chol[i][i]
		row[i] = v
		left -= v * v
		right -= v * r.z[i]
	}
	if !(left > 1e-7*own) {
		return row, 0
	}
	row[r.n] = math.Sqrt(left)
	return row, right / row[r.n]
}

func (r *bendRegression) push(j int, row [maxTerms]float64, z float64) {
	r.terms[r.n], r.chol[r.n], r.z[r.n] = j, row, z
	r.n++
}

// coefficients solves for the coefficients of the selected terms.
func (r *bendRegression) coefficients() (c [maxTerms]float64) {
	for i := r.n - 1; i >= 0; i-- {
		v := r.z[i]
		for k := i + 1; k < r.n; k++ {
			v -= r.chol[k][i] * c[k]
		}
		c[i] = v / r.chol[i][i]
	}
	return c
}

// run fits the loaded samples. At least one sample is required. variance is the variance of a sample of weight 1. run
// returns false if the curve is flat, because utilisation hardly varied or power does not rise with it.
func (r *bendRegression) run(variance float64) bool {
	r.n = 0
	row, z := r.try(constant)
	r.push(constant, row, z)
	all := &r.tail[0]
	if mean := all.u / all.w; !(all.uu/all.w-mean*mean > minVariance) {
		return false
	}
	row, z = r.try(0)
	if z <= 0 {
		return false
	}
	r.push(0, row, z)
	r.bend(variance)
	if r.coefficients()[1] >= 0 {
		return true
	}
	r.n = 1 // the curve starts flat and noise tilted it
	r.bend(variance)
	return r.n > 1
}

// bend adds bends while one of them explains enough variance.
func (r *bendRegression) bend(variance float64) {
	for r.n < maxTerms {
		best, most := constant, 1.0
		var row [maxTerms]float64
		var z float64
		for j := 1; j < curveBins; j++ {
			if r.tail[0].n-r.tail[j].n < bendMass || r.tail[j].n < bendMass {
				continue
			}
			to, at := r.try(j)
			gain := at * at / (bendUp * variance)
			if at < 0 {
				gain *= bendUp / bendDown
			}
			if gain > most && (at > 0 || r.rises(j, to, at)) {
				best, most, row, z = j, gain, to, at
			}
		}
		if best == constant {
			return
		}
		r.push(best, row, z)
	}
}

// rises reports whether power remains nondecreasing if term j is added.
func (r *bendRegression) rises(j int, row [maxTerms]float64, z float64) bool {
	if r.n < 2 {
		return false
	}
	r.push(j, row, z)
	c := r.coefficients()
	r.n--
	for k := range curveBins {
		slope := 0.0
		for i := 1; i <= r.n; i++ {
			term := j
			if i < r.n {
				term = r.terms[i]
			}
			if term <= k {
				slope += c[i]
			}
		}
		if slope < 0 {
			return false
		}
	}
	return true
}

// curve returns the fitted curve.
func (r *bendRegression) curve() (c powerCurve) {
	coef := r.coefficients()
	for k, u := range curveEdges {
		c[k] = coef[0]
		for i := 1; i < r.n; i++ {
			c[k] += coef[i] * max(0, u-curveEdges[r.terms[i]])
		}
		c[k] = max(c[k], c[max(k-1, 0)], 0)
	}
	return c
}

// interceptVariance returns the variance of the power at zero load, in units of the variance of a sample of weight
// 1.
func (r *bendRegression) interceptVariance() float64 {
	var x [maxTerms]float64
	sum := 0.0
	for i := range r.n {
		v := 0.0
		if i == 0 {
			v = 1
		}
		for k := range i {
			v -= r.chol[i][k] * x[k]
		}
		x[i] = v / r.chol[i][i]
		sum += x[i] * x[i]
	}
	return sum
}
