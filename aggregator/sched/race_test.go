//go:build race

package sched_test

// raceDetector says that allocations cannot be counted.
const raceDetector = true
