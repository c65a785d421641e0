// Package forecast expects the future of a signal of the grid: from its own past where there is one, else from the
// typical day of its zone.
//
// The plain models are those that any better one must beat. [Best] picks among them by how they would have done on
// the history at hand, and gives percentiles from the errors that it found there. The models History and WithWeather
// are learnt from 60 days of history or more, and do better. [Issue] makes forecasts as they would have been issued
// over a span of a record, and [Evaluate] says how good they were. The package fetches nothing and knows no clock.
package forecast
