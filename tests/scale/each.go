package scale

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// Each runs subtests by number, as many at once as there are processors. A subtest gives its memory back at its end: package testing
// keeps finished parallel subtests, with all that their cleanups refer to, until the last one has ended.
func Each(t *testing.T, n int, name func(i int) string, test func(t *testing.T, i int)) {
	var next atomic.Int64
	t.Run("each", func(t *testing.T) {
		for range runtime.GOMAXPROCS(0) {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
					t.Run(name(i), func(t *testing.T) { test(t, i) })
				}
			})
		}
	})
}
