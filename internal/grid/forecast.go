package grid

import "time"

// Forecast is the forecast of a signal by one model, as of IssuedAt. The zero Forecast is absent.
type Forecast struct {
	Series    *Series
	Low, High *Series // tenth and ninetieth percentile of each value; nil if the model has none
	IssuedAt  time.Time
	Model     string // name of the provider, or of one of our models
}
