package forecast

import "fmt"

// levelRegressions are the second estimate: for each lead, a ridge regression of the intensity itself instead of
// its logarithm, on previous values. It minimizes absolute errors while the three stages minimize relative errors,
// it uses the last day hour by hour, and its errors are largely independent. The mean of both is therefore more
// accurate than either. It is not used with weather, which is more informative.
type levelRegressions [][]float64

const (
	levelPenalty     = 0.003 // per origin of the training
	levelWeight      = 0.5   // of the second estimate
	maxLevelFeatures = 64
)

// regressLevels fits the second estimate.
func (v *view) regressLevels(o *origins, horizon, processors int) (levelRegressions, error) {
	all := make(levelRegressions, horizon)
	err := inParallel(processors, horizon, func(h int) error {
		var scratch [maxLevelFeatures]float64
		hours := o.before(h)
		p := len(v.levelFeatures(scratch[:0], reach, h))
		rows := make([]float64, 0, len(hours)*(p+1))
		for _, t := range hours {
			rows = v.levelFeatures(rows, t, h)
			rows = append(rows, v.values[t+h])
		}
		s := standardise(rows, p+1, p)
		g := make([]float64, (p+1)*(p+1))
		gram(g, rows, p+1)
		b, err := newSolver(p).solve(g, levelPenalty*float64(len(hours)))
		if err != nil {
			return fmt.Errorf("fitting the levels of a lead: %w", err)
		}
		all[h] = s.raw(b)
		return nil
	})
	return all, err
}

// levelFeatures appends the features of the hour h hours after origin t, in the units of the intensity. The first
// feature is 1, for the constant.
func (v *view) levelFeatures(x []float64, t, h int) []float64 {
	hour := t + h
	k := lastKnown(h, 24, hour)
	y := &v.levels
	x = append(x, 1)
	for lag := 1; lag <= 24; lag++ {
		x = append(x, y.values[t-lag])
	}
	x = append(x, y.values[k], y.values[k-24], y.week[k], y.month[k], y.values[lastKnown(h, 168, hour)],
		y.mean(t-24, t), y.mean(t-72, t), y.mean(t-168, t), y.mean(t-672, t))
	c := &v.days[hour]
	x = append(append(x, c.year[:]...), c.day[:]...)
	for d := range 6 {
		x = append(x, indicator(c.weekday == d))
	}
	for _, year := range c.year[:2] {
		for _, day := range c.day[:4] {
			x = append(x, year*day)
		}
	}
	return x
}
