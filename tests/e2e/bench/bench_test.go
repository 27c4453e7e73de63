// Package bench runs umbra bench with virtual machines: a stock kernel probes the card itself and a
// virtual GPU, alternately. It checks the counters, not the times.
package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/scale"
)

func TestMachines(t *testing.T) {
	scale.ReleaseOnly(t)
	labtest.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	setups := []string{"pass-through", "naive"}
	r, err := bench.Run(ctx, bench.Options{
		Quick: true, Machines: true, Setups: setups, Only: []string{"probe", "doorbell"}, Progress: t.Output(),
	})
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	require.NotEmpty(t, r.Lines)
	require.NotEmpty(t, r.Lines[0].GetConfig("qemu"))
	t.Attr("kernel", "6.12 under "+r.Lines[0].GetConfig("accelerator"))
	of := func(scenario, name, setup string) map[string]float64 {
		return r.Medians(bench.Key{Where: "machine", Scenario: scenario, Case: "linux=6.12" + name, Setup: setup})
	}
	for _, s := range setups {
		require.Greater(t, of("probe", "", s)["reads/op"], 5000.0, "registers")
		require.Greater(t, of("probe", "", s)["traps/op"], 300_000.0, "instance memory")
		require.Positive(t, of("doorbell", "/fences", s)["fence-p50-sec"])
	}
	require.GreaterOrEqual(t, of("doorbell", "/fences", "naive")["doorbells/op"], 1.0)
	require.Greater(t, of("probe", "", "naive")["invalidates/op"], 10.0)
}
