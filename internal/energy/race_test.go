//go:build race

package energy_test

// raced is set if the race detector is enabled, which makes arithmetic ten times slower.
const raced = true
