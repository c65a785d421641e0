//go:build !race

package exposition

// raceDetector is true if the race detector is enabled, which slows down all code.
const raceDetector = false
