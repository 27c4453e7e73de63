//go:build race

package sched_test

import "flag"

const (
	// raceDetector says that allocations cannot be counted.
	raceDetector = true
	costTurns    = 2_000
)

// The race detector has nothing to find here: there is one goroutine. So properties are
// tried less often under it; what is asked for on the command line goes before.
func init() { _ = flag.Set("rapid.checks", "20") }
