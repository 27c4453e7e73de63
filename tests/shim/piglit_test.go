package shim

import (
	"context"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestPiglitReasons: the list can be read.
func TestPiglitReasons(t *testing.T) {
	list, err := PiglitReasons()
	require.NoError(t, err)
	require.NotEmpty(t, list)
}

// TestPiglit: the tests that say something of a card pass, except those that the list names with a
// reason, and each of these fails. One in 40 is held against the devices that make it a test that
// counts. With UMBRA_TEST_JIT the card runs programs as machine code.
func TestPiglit(t *testing.T) {
	scale.ReleaseOnly(t)
	t.Parallel()
	reasons, err := PiglitReasons()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
	defer cancel()
	var cfg Config
	if os.Getenv("UMBRA_TEST_JIT") != "" {
		cfg.Compile = compiler(t)
	}
	var hosts []*Host
	for range runtime.NumCPU() {
		hosts = append(hosts, newTestHost(t, ctx, (*fetch.Cache).Tools, "25"))
	}
	tests, err := hosts[0].PiglitTests()
	require.NoError(t, err)
	for test := range reasons {
		assert.Contains(t, tests, test, "the list has a test that piglit does not have")
	}
	tests = slices.DeleteFunc(tests, func(test string) bool { return reasons[test] == "nothing" })
	PiglitEach(ctx, hosts, tests, func(h *Host, i int) {
		test, r := tests[i], PiglitResult{}
		var err error
		if i%40 == 0 {
			r, err = h.Piglit(ctx, test)
			assert.True(t, r.Counts(), "%s says nothing of a card: %+v", test, r)
		} else {
			r.Card, r.Why, err = h.piglitOn(ctx, test, OurCard, cfg)
		}
		assert.NoError(t, err)
		assert.Equal(t, reasons[test] != "", r.Card != "pass", "%s: %s %s, reason in the list: %q", test, r.Card, r.Why, reasons[test])
	})
	require.NoError(t, ctx.Err())
}
