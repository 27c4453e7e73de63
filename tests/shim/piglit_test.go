package shim

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
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
// counts.
func TestPiglit(t *testing.T) {
	scale.ReleaseOnly(t)
	t.Parallel()
	reasons, err := PiglitReasons()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Minute)
	defer cancel()
	var hosts []*Host
	for range runtime.NumCPU() {
		host := newTestHost(t, ctx, (*fetch.Cache).Tools, "25")
		hosts = append(hosts, host)
	}
	tests, err := hosts[0].PiglitTests()
	require.NoError(t, err)
	for test := range reasons {
		assert.Contains(t, tests, test, "the list has a test that piglit does not have")
	}
	tests = slices.DeleteFunc(tests, func(test string) bool { return reasons[test].Class == "nothing" })

	var mu sync.Mutex // guards what follows
	sets := map[string]struct{ passed, mesa, all int }{}
	queue := make(chan int)
	var working sync.WaitGroup
	for _, host := range hosts {
		working.Go(func() {
			for i := range queue {
				test := tests[i]
				result, why, err := host.PiglitOn(ctx, test, PiglitCard)
				assert.NoError(t, err)
				class := reasons[test].Class
				assert.Equal(t, class != "", result != "pass", "%s: %s %s, reason in the list: %q", test, result, why, class)
				mu.Lock()
				set := sets[filepath.Ext(test)]
				set.all++
				switch {
				case result == "pass":
					set.passed++
				case class == "mesa":
					set.mesa++
				}
				sets[filepath.Ext(test)] = set
				mu.Unlock()
				if i%40 == 0 {
					idle, _, err := host.PiglitOn(ctx, test, PiglitIdle)
					assert.NoError(t, err)
					software, _, err := host.PiglitOn(ctx, test, PiglitSoftware)
					assert.NoError(t, err)
					r := PiglitResult{Idle: idle, Software: software}
					assert.True(t, r.Counts(), "%s says nothing of a card: %+v", test, r)
				}
			}
		})
	}
	for i := range tests {
		queue <- i
	}
	close(queue)
	working.Wait()
	for set, n := range sets {
		percent := func(of int) float64 { return 100 * float64(n.passed) / float64(of) }
		fmt.Fprintf(t.Output(), "%s: %d of %d tests pass (%.1f %%); without the %d that Mesa compiles wrongly %.1f %%\n",
			set, n.passed, n.all, percent(n.all), n.mesa, percent(n.all-n.mesa))
	}
}
