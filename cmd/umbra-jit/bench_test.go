package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
)

// BenchmarkLaunch measures what a launch of one block costs that ends at once: the round trip, and its description.
func BenchmarkLaunch(b *testing.B) {
	r := newRig(b, realLibrary(b), "exit")
	r.launch.Grid[0], r.job.Blocks.Grid[0] = 1, 1
	require.Equal(b, engine.RanNative, r.run().Outcome)
	for b.Loop() {
		r.job.Number++
		r.job.Grid.Next, r.job.Grid.Blocks = 0, 1
		require.Equal(b, engine.RanNative, r.native.Run(r.job).Outcome)
	}
}
