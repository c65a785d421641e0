//go:build !race

package forecast_test

// raced is whether the race detector is on, under which arithmetic takes ten times as long.
const raced = false
