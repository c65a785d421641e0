//go:build race

package cli

// Slower is the slowdown of the simulator by the race detector.
const Slower = 10
