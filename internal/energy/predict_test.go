package energy

import "math"

// Predict returns the power at utilisation u, clamped to [0,1]: the fitted curve in the sampled range, a line to
// idle power below it and the last slope above it. While no slope is known, it has the shape of the prior; without
// samples and prior it is 0.
func (f *Fit) Predict(u float64) Watts {
	u = min(max(u, 0), 1)
	if math.IsNaN(u) {
		u = 0
	}
	switch {
	case f.seen == 0 && f.prior == nil:
		return 0
	case f.seen == 0:
		return f.prior.Power(u)
	case u == 0:
		return Watts(f.idle)
	case u < f.lo:
		return Watts(f.idle + (f.curve.at(f.lo)-f.idle)*u/f.lo)
	case !f.shaped && f.shape(f.lo) > 0:
		return Watts(f.curve.at(f.lo) * f.shape(u) / f.shape(f.lo))
	}
	return Watts(f.curve.at(u))
}
