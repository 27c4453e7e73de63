package homes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestRounds holds the rounds to what is said of them, whatever guests do: soon after
// something was done all bytes are looked at, then ever less often; never is a byte left
// out for longer than restWhole of the longest waits; and no guest has more than its part
// of a processor.
func TestRounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r rounds
		r.poked()
		quiet, left := time.Duration(0), time.Duration(0) // since something happened; since all bytes were looked at
		took, longest := time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(t, "rounds") {
			wait := r.wait
			require.GreaterOrEqual(t, wait, max(freshMin, min(3*took, freshPause)), "a quarter of a processor")
			require.LessOrEqual(t, wait, max(min(quiet+max(freshMin, 3*longest), freshMax), 3*longest), "who waits waits twice as long at most")
			quiet, left = quiet+wait, left+wait
			whole := r.polled() == pageSize
			if wait < restAt {
				require.True(t, whole)
			}
			require.LessOrEqual(t, left, restWhole*max(freshMax, 3*longest))
			now := time.Unix(0, rapid.Int64Range(0, 1e12).Draw(t, "now"))
			if due := r.due(now); wait != freshMax {
				require.Equal(t, wait, due)
			} else {
				require.Greater(t, due, time.Duration(0))
				require.LessOrEqual(t, due, wait)
				require.Equal(t, now.Add(due), now.Add(due).Truncate(freshMax), "not the moment of all others")
			}
			moved := 0
			if rapid.IntRange(0, 9).Draw(t, "moved") == 0 {
				moved = 1
			}
			took = time.Duration(rapid.Int64Range(0, int64(2*time.Millisecond)).Draw(t, "took"))
			longest = max(longest, took)
			if r.done(moved, took); moved > 0 {
				require.Equal(t, rounds{wait: max(freshMin, min(3*took, freshPause)), took: took}, r)
				quiet = 0
			}
			if whole {
				left = 0
			}
			if rapid.IntRange(0, 19).Draw(t, "poked") == 0 {
				r.poked()
				quiet = 0
			}
		}
	})
}

// TestIdleRoundsAreFew: an idle guest's replicas are looked at every freshMax, and all of
// their bytes in one of restWhole times.
func TestIdleRoundsAreFew(t *testing.T) {
	var r rounds
	r.poked()
	n := 0
	for ; r.wait < freshMax; n++ {
		r.done(0, 0)
	}
	require.LessOrEqual(t, n, 14, "until it counts as idle")
	whole := 0
	for range 100 {
		require.Equal(t, freshMax, r.wait)
		if r.polled() == pageSize {
			whole++
		}
		r.done(0, 0)
	}
	require.Equal(t, 100/restWhole, whole)
}

// TestPokesDoNotPutRoundsOff: who traps all the time, and pokes whenever it is to, has
// rounds all the time, however long the last one took or was kept waiting.
func TestPokesDoNotPutRoundsOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var r rounds
		r.poked()
		now, done := time.Duration(0), time.Duration(0)
		next := r.wait // as the timer is set
		for ; now < 2*time.Second; now += 50 * time.Microsecond {
			require.LessOrEqual(t, now-done, freshPause+2*slowAt)
			if now >= next {
				took := time.Duration(rapid.SampledFrom([]int{0, 10, 200, 5000, 20000, 500000}).Draw(t, "took")) * time.Microsecond
				r.done(0, took)
				now += took
				next, done = now+r.wait, now
			}
			if r.seldom() {
				r.poked()
				next = now + r.wait
			}
		}
	})
}
