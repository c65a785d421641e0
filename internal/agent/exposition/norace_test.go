//go:build !race

package exposition

// raceDetector says whether it makes everything slow.
const raceDetector = false
