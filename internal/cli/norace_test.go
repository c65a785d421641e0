//go:build !race

package cli

// Slower is the slowdown of the simulator by the race detector, which is disabled.
const Slower = 1
