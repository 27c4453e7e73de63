//go:build race

package shadowpt_test

import "flag"

// The race detector has nothing to find here: there is one goroutine. So properties are
// tried less often under it; what is asked for on the command line goes before.
const (
	someTables  = 200
	oneIsEnough = true // program that misses what was left out
)

func init() { _ = flag.Set("rapid.checks", "15") }
