//go:build race

package dedupe

const raceDetector = true
