//go:build race

package forecast_test

// raced reports whether the race detector is enabled. Arithmetic is ten times slower with it.
const raced = true
