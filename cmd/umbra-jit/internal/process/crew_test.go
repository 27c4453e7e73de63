package process

import (
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
)

// Each turn is had once, before finish returns, or is taken back: then only where the time was over, and for good.
func TestCrew(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	c := newCrew()
	var had [jit.Slots]atomic.Int64 // the last turn
	for turn := int64(1); turn <= 5000; turn++ {
		for i := 1; i < jit.Slots; i++ {
			c.start(i, func() {
				if had[i].Swap(turn) >= turn {
					t.Error("a turn came again, or after the next")
				}
			})
		}
		over := turn%2 == 0
		late := c.finish(over)
		missed := 0
		for i := 1; i < jit.Slots; i++ {
			if had[i].Load() != turn {
				missed = i
			}
		}
		require.Equal(t, missed, late, "the last that had no turn")
		require.True(t, late == 0 || over)
	}
}
