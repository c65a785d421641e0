// Package forecast predicts a grid signal, from its own history if available, otherwise from the typical day of its
// zone.
//
// The plain models are baselines that better models must improve on. [Best] selects one of them by its error on the
// given history, and computes percentiles from these errors. The models History and WithWeather are trained on at
// least 60 days of history and are more accurate. [Issue] produces the forecasts that would have been issued over a
// period of a recorded history, and [Evaluate] measures their accuracy. The package does not fetch data and does
// not use the current time.
package forecast
