//go:build race

package program_test

import "flag"

// The race detector looks for orders of goroutines, of which each draw has many: fewer
// draws find them. What is asked for on the command line goes before.
func init() { _ = flag.Set("rapid.checks", "30") }
