//go:build race

package cli_test

// slower is how much the race detector slows the simulator down.
const slower = 10
