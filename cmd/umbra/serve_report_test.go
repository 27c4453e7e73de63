package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// TestTimesAreNoCounts: a time has a unit, and does not stand among the counts.
func TestTimesAreNoCounts(t *testing.T) {
	text := reportText(&serve.Report{GPUs: []serve.GPUReport{{
		Name: "a", Clients: serve.ClientCount{Served: 1},
		Counts: []aggregator.Count{{Name: "unmaps", N: 29}}, UnmapTime: 1234567 * time.Nanosecond,
	}}})
	require.Regexp(t, `(?m)^  unmaps +29$`, text)
	require.Regexp(t, `(?m)^Until the card had let go of memory that the guest unmapped: 1.23ms in all$`, text)
	require.NotContains(t, text, "1234567")
	require.NotContains(t, reportText(&serve.Report{}), "let go")
}
