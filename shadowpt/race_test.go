//go:build race

package shadowpt_test

import "flag"

// The race detector has little to find here: there is one goroutine, but where stores are
// made beside looks. So properties are tried less often under it; what is asked for on the
// command line goes before.
const (
	someTables  = 200
	oneIsEnough = true // program that misses what was left out
	rounds      = 100
)

func init() { _ = flag.Set("rapid.checks", "15") }
