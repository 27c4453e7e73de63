package shim

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestPeers: all devices find right results in each round, also where a round changes its input, and say
// how long they took.
func TestPeers(t *testing.T) {
	scale.ReleaseOnly(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	host := newTestHost(t, ctx, (*fetch.Cache).Peers, "25")
	c := Comparison{Host: host, Turns: 1, Rounds: 2}
	for _, w := range Workloads {
		c.Workloads = append(c.Workloads, Workload{Program: w.Program}) // of its own size
	}
	list, err := c.Run(ctx)
	require.NoError(t, err)
	for _, m := range list {
		for _, device := range Devices {
			require.Positive(t, m.Fastest[device], "%s on %s", m.Program, device)
			require.Positive(t, m.Processors[device], "%s on %s", m.Program, device)
		}
		require.NotZero(t, m.Launches, m.Program)
		require.GreaterOrEqual(t, m.WarpInstructions, m.Launches, m.Program)
	}
}

// TestGeometricMean: devices that are twice and half as fast are as fast. Ours is held against the better.
func TestGeometricMean(t *testing.T) {
	list := []Times{{OurCard: 2, Renderer: 1, PoCL: 3}, {OurCard: 2, Renderer: 5, PoCL: 4}}
	require.InDelta(t, 1, GeometricMean(list, OurCard), 1e-9)
}
