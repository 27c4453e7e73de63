package jit

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// TestWorth: the process gets launches that take the server longer than to ask for them, by what the last one there took for a warp.
func TestWorth(t *testing.T) {
	g := &Guest{programs: make(map[key]*program)}
	launch := func(blocks, begun uint64) *engine.Job {
		return &engine.Job{
			Launch: new(sm.Launch), Blocks: interp.Launch{Block: [3]uint32{64, 1, 1}},
			Grid: &engine.Grid{Blocks: blocks, Next: begun, Steps: 1},
		}
	}
	worth := func(j *engine.Job) bool { return g.program(j).worth(j, false) }
	require.False(t, worth(launch(1<<20, 0)), "nothing is known of the first")
	g.Executed(launch(100, 50), 10*roundTrip) // and did not end in its step
	require.True(t, worth(launch(10, 0)))
	require.False(t, worth(launch(4, 0)))
	g.Executed(launch(4, 4), roundTrip/100)
	require.False(t, worth(launch(100, 0)))
	require.True(t, worth(launch(1000, 0)))
	long := launch(4, 2)
	long.Grid.Steps = 2
	require.True(t, worth(long), "it goes on")
}
