//go:build !race

package sched_test

const (
	raceDetector = false
	costTurns    = 20_000 // of which the cost of one is the mean
)
