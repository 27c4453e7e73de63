// Package bench runs umbra bench with virtual machines: a stock kernel probes the card itself and a
// virtual GPU, alternately. It checks the counters, not the times.
package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/result"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/cmd/lab/labtest"
	"github.com/umbra-gpu/umbra/tests/scale"
)

func TestMachines(t *testing.T) {
	scale.ReleaseOnly(t)
	labtest.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	setups := []string{setup.PassThrough, setup.Naive}
	r, err := bench.Run(ctx, bench.Options{
		Quick: true, Rounds: 1, Boots: 1, Machines: true, Setups: setups,
		Only: []string{"probe", "doorbell", "bandwidth", "traps", "suspend"}, Progress: t.Output(),
	})
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	require.NotEmpty(t, r.Config("qemu"))
	t.Attr("kernel", "6.12 under "+r.Config("accelerator"))
	metrics := map[string]map[string]result.Spread{}
	for _, g := range r.Groups(true) {
		require.Equal(t, result.Machine, g.Where)
		metrics[g.Scenario+"/"+g.Case+"/"+g.Setup] = g.Metrics
	}
	metric := func(key, unit string) float64 {
		t.Helper()
		require.Contains(t, metrics, key)
		require.Contains(t, metrics[key], unit)
		return metrics[key][unit].Median
	}
	for _, s := range setups {
		require.Greater(t, metric("probe/linux=6.12/"+s, "reads/op"), 5000.0, "registers")
		require.Greater(t, metric("probe/linux=6.12/"+s, result.Traps), 300_000.0, "instance memory")
		require.Positive(t, metric("doorbell/linux=6.12/doorbells/"+s, "launch-p50-sec"))
		require.Positive(t, metric("suspend/linux=6.12/poweroff/"+s, "guest-clock-sec"))
	}
	require.GreaterOrEqual(t, metric("doorbell/linux=6.12/fences/naive", "doorbells/op"), 1.0)
	require.Greater(t, metric("probe/linux=6.12/naive", "invalidates/op"), 10.0)
}
