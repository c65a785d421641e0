//go:build !race

package cli

// Slower is how much the race detector slows the simulator down: it is not there.
const Slower = 1
