//go:build race

package scenarios_test

// raced is true if the race detector is enabled, which slows down long traces to minutes.
const raced = true
