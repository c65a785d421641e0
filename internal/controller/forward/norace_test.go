//go:build !race

package forward_test

// raced is true if the race detector is enabled. Reading large bodies then takes ten times as long.
const raced = false
