package report_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
)

// TestBusy: a run on a machine whose processors were taken says so, above its tables.
func TestBusy(t *testing.T) {
	r := report.Report{Machine: report.Machine{Processors: 2, Load: 1.9}}
	require.NotContains(t, r.Text(), "doubtful")
	r.Machine.Load = 19
	require.Contains(t, r.Text(), "\nNOTE: other work kept the machine busy (load 19.0 on 2 processors when the run began): times and ratios are doubtful; let it end, and measure again\n")
	r.Machine.Processors = 32
	require.NotContains(t, r.Text(), "doubtful")
}
