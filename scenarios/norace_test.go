//go:build !race

package scenarios_test

// raced is whether the race detector is on, under which a long trace takes minutes.
const raced = false
