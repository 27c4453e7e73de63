package shadow

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// hurried is a guest for whose tables a trap may wait.
type hurried struct {
	shadowpt.Guest
	urgent bool
}

func (h *hurried) Urgent() bool { return h.urgent }

// TestTableWorkYields: on one processor, a guest with long tables lets others run after each slice
// of work. If a trap waits, its work ends.
func TestTableWorkYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var turns, stop atomic.Int64
	var other sync.WaitGroup
	other.Go(func() {
		for stop.Load() == 0 {
			turns.Add(1)
			runtime.Gosched()
		}
	})
	guest := new(hurried)
	mine := meter{guest: guest, left: new(uint64)}
	*mine.left = 1
	spend := func(n uint64) int64 {
		before := turns.Load()
		for range n / 512 {
			mine.spend(512)
		}
		return turns.Load() - before
	}
	require.Greater(t, spend(100*slice), int64(50)) // the race detector has others run, too
	require.NotZero(t, mine.away)
	require.NotZero(t, *mine.left)
	guest.urgent = true
	away := mine.away
	spend(100 * slice) // the runtime may let others run meanwhile
	require.Equal(t, away, mine.away)
	require.Zero(t, *mine.left, "the round ends early")
	stop.Store(1)
	other.Wait()
}
