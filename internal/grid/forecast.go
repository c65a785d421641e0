package grid

import "time"

// Forecast is what one model expects of a signal, known as of a moment. The zero Forecast is absent.
type Forecast struct {
	Series    *Series
	Low, High *Series // tenth and ninetieth percentile of each value; both nil where the model gives none
	IssuedAt  time.Time
	Model     string // who forecast: a provider's name, or that of one of our models
}
