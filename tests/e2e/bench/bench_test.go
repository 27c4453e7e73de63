// Package bench runs umbra bench with virtual machines: a stock kernel probes the
// card itself and a virtual GPU, by turns. It looks at what was counted, not at
// how long it took.
package bench

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/setup"
	"github.com/umbra-gpu/umbra/tests/lab/labtest"
)

func TestMachines(t *testing.T) {
	labtest.Need(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	r, err := bench.Run(ctx, bench.Options{
		Umbra: "test", Quick: true, Repeat: 1, Boots: 1, Setups: []string{report.PassThrough, setup.Naive},
		Only: []string{"probe", "doorbell", report.Bells, "traps", "suspend"}, Progress: t.Output(),
	})
	require.NoError(t, err)
	require.Empty(t, r.Errors)
	require.Empty(t, r.Undescribed(), "each phase and figure is described in report.Columns")
	require.NotNil(t, r.Emulator)
	t.Attr("kernel", "6.12 under "+r.Emulator.Accelerator)
	count := func(scenario, name, setup, count string) float64 {
		t.Helper()
		x := r.Find(report.InMachine, scenario, name, setup)
		require.NotNil(t, x, "%s on %s", scenario, setup)
		require.Contains(t, x.Total.Counts, count)
		require.NotNil(t, x.Ratio)
		return x.Total.Counts[count].Median
	}
	for _, s := range []string{report.PassThrough, setup.Naive} {
		require.Greater(t, count("probe", "Linux 6.12", s, report.Reads), 5000.0, "registers of a probe")
		require.Greater(t, count("probe", "Linux 6.12", s, report.Writes), 300_000.0, "instance memory of a probe")
		require.Greater(t, count("doorbell", "Linux 6.12, fences", s, report.Writes), 100.0)
	}
	require.Greater(t, count(report.Bells, "Linux 6.12, no scheduler", report.PassThrough, report.Writes), 300.0, "stores and submissions")
	require.GreaterOrEqual(t, count("doorbell", "Linux 6.12, fences", setup.Naive, report.Doorbells), 100.0)
	require.Positive(t, count("probe", "Linux 6.12", setup.Naive, report.Scans))
	require.Greater(t, count("probe", "Linux 6.12", setup.Naive, report.Invalidates), 10.0)
	require.NotNil(t, r.Find(report.InMachine, "suspend", "Linux 6.12, poweroff", setup.Naive))
}
