package main

import (
	"bytes"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/lab/fetch"
)

// TestLibraryThatCannotBeHad: the step says that it skips and why, the summary
// counts it, and it is no failure.
func TestLibraryThatCannotBeHad(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(t *testing.T)
		why  string
	}{
		{"no compiler", func(t *testing.T) { t.Setenv("CC", "a-compiler-that-is-not-there") }, "apt-get install gcc libc6-dev"},
		{"no mirror", func(t *testing.T) { t.Setenv("UMBRA_DEBIAN_MIRROR", "http://127.0.0.1:1/debian") }, "127.0.0.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv("CGO_CFLAGS", "")
			t.Setenv("CGO_LDFLAGS", "")
			t.Setenv(fetch.EnvCache, t.TempDir())
			c.set(t)
			var out bytes.Buffer
			k := checker{out: &out}
			k.step(t.Context(), step{name: "libvfio-user", do: (*checker).cLibrary})
			require.NoError(t, k.results[0].err)
			require.Regexp(t, "(?m)^SKIP libvfio-user: .*"+fetch.ErrUnavailable.Error()+".*"+regexp.QuoteMeta(c.why), out.String())
			require.Contains(t, k.results[0].skipped, c.why)
			require.Zero(t, k.summary())
			require.Contains(t, out.String(), "0 passed, 0 failed, 1 skipped")
		})
	}
}
