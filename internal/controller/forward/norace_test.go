//go:build !race

package forward_test

// raced is whether the race detector is on, under which reading large bodies takes ten times as long.
const raced = false
