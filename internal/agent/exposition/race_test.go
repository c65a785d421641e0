//go:build race

package exposition

const raceDetector = true
