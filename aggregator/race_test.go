//go:build race

package aggregator

// raceDetector says that allocations cannot be counted: under the race detector
// a pool forgets on purpose.
const raceDetector = true
