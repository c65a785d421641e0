//go:build race

package cli

// Slower is how much the race detector slows the simulator down.
const Slower = 10
