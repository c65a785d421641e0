package grid

import (
	"fmt"
	"time"
)

// Forecast is what one model expects of a signal, known as of a moment. The zero Forecast is absent.
type Forecast struct {
	Series    *Series
	Low, High *Series // tenth and ninetieth percentile of each value; both nil where the model gives none
	IssuedAt  time.Time
	Model     string // who forecast: a provider's name, or that of one of our models
}

// Validate reports what makes a forecast unusable: the three series must be of the same
// steps, with every value between its percentiles.
func (f Forecast) Validate() error {
	switch {
	case f.Series == nil:
		return fmt.Errorf("forecast of model %q has no series", f.Model)
	case f.Model == "":
		return fmt.Errorf("forecast from %s names no model", f.Series.Start().Format(time.RFC3339))
	case f.IssuedAt.IsZero():
		return fmt.Errorf("forecast of model %q says not when it was issued", f.Model)
	case (f.Low == nil) != (f.High == nil):
		return fmt.Errorf("forecast of model %q has one percentile: want both or none", f.Model)
	case f.Low == nil:
		return nil
	}
	for i, s := range []*Series{f.Low, f.High} {
		name := [...]string{"low", "high"}[i]
		if s.start != f.Series.start || s.step != f.Series.step || len(s.values) != len(f.Series.values) {
			return fmt.Errorf(
				"forecast of model %q: the %s series has %d values every %v from %s, the forecast %d every %v from %s",
				f.Model, name,
				s.Len(), s.Step(), s.Start().Format(time.RFC3339), f.Series.Len(), f.Series.Step(),
				f.Series.Start().Format(time.RFC3339))
		}
	}
	for i, v := range f.Series.values {
		if low, high := f.Low.values[i], f.High.values[i]; low > v || v > high {
			return fmt.Errorf("forecast of model %q: value %d is %v, outside of its percentiles %v and %v", f.Model, i,
				v, low, high)
		}
	}
	return nil
}
