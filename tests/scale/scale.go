// Package scale selects the effort of tests: small in make test and plain go test, large in
// make test-release.
//
// The number of cases of a property test and their seed are rapid's own
// settings: make sets RAPID_CHECKS and RAPID_SEED.
package scale

import (
	"os"
	"testing"
)

// Env is the environment variable that asks for the release suite, with any value.
const Env = "UMBRA_TEST_RELEASE"

// Release reports whether the release suite runs.
func Release() bool { return os.Getenv(Env) != "" }

// Of returns the first value in make test, and the second in make test-release.
func Of[T any](few, many T) T {
	if Release() {
		return many
	}
	return few
}

// ReleaseOnly skips a test that only make test-release runs.
func ReleaseOnly(t testing.TB) {
	t.Helper()
	if !Release() {
		t.Skip("make test-release runs this test")
	}
}
