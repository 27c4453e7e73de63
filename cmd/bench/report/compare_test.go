package report_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

// TestCompareRefuses changes one field at a time: no ratio of what it matters to,
// and the field is named.
func TestCompareRefuses(t *testing.T) {
	for _, c := range []struct {
		field  string
		change func(r *report.Report)
		left   int // results that can still be compared, of 4
		says   string
	}{
		{"processor", func(r *report.Report) { r.Machine.Processor = "Another" }, 0, "machine.processor: A Processor here, Another there"},
		{"processors", func(r *report.Report) { r.Machine.Processors = 64 }, 0, "machine.processors: 2 here, 64 there"},
		{"memory", func(r *report.Report) { r.Machine.MemoryMiB = 1 }, 0, "machine.memory_mib: 24105 here, 1 there"},
		{"kernel", func(r *report.Report) { r.Machine.Kernel = "7.2" }, 0, "machine.kernel: 6.18 here, 7.2 there"},
		{"QEMU", func(r *report.Report) { r.Emulator.QEMU = "10.1" }, 2, "emulator.qemu: 11.1.3 here, 10.1 there"},
		{"accelerator", func(r *report.Report) { r.Emulator.Accelerator = "kvm" }, 2, "emulator.accelerator: tcg here, kvm there"},
		{"no QEMU", func(r *report.Report) { r.Emulator = nil }, 2, "emulator.qemu: 11.1.3 here, none there"},
		{"a parameter", func(r *report.Report) { r.Results[0].Parameters = map[string]string{"work_ms": "100"} }, 3, "parameters.work_ms: 10 here, 100 there"},
		{"one parameter more", func(r *report.Report) { r.Results[0].Parameters = map[string]string{"work_ms": "10", "bytes": "1"} }, 3, "parameters.bytes: none here, 1 there"},
		{"an option", func(r *report.Report) { r.Setups[1].Options = map[string]string{"server.spin": "1ms"} }, 2, "options of slow.server.spin: 50us here, 1ms there"},
		{"no such option", func(r *report.Report) { r.Setups[1].Options = nil }, 2, "options of slow.server.spin: 50us here, none there"},
		{"no such case", func(r *report.Report) { r.Results[2].Case = "11 ms" }, 3, "results: measured here, not measured there"},
		{"no such set-up", func(r *report.Report) { r.Results[1].Setup = "other"; r.Setups[1].Name = "other" }, 2, "results: measured here"},
	} {
		t.Run(c.field, func(t *testing.T) {
			then := sample()
			c.change(then)
			got, err := report.Compare(sample(), then)
			require.Len(t, got.Rows, c.left)
			if c.left == 0 {
				require.ErrorIs(t, err, report.ErrNotComparable)
				require.ErrorContains(t, err, c.says)
			} else {
				require.NoError(t, err)
			}
			require.Contains(t, got.Text(), c.says)
			refused := 0
			for _, r := range got.Refused {
				refused += len(r.Results)
			}
			require.Equal(t, 4, c.left+refused)
			if strings.HasPrefix(c.field, "no such case") || strings.HasPrefix(c.field, "no such set-up") {
				require.Len(t, got.Missing, 1, "what is under another name there is missing here")
				require.Contains(t, got.Text(), "Measured there, not here, ")
			} else {
				require.Empty(t, got.Missing)
				require.NotContains(t, got.Text(), "not here")
			}
		})
	}
}

// What may differ is what is compared, and what says nothing about times.
func TestCompareTakes(t *testing.T) {
	then := sample()
	then.Umbra, then.Machine.Load, then.Machine.Go, then.Run.Repeat, then.Seconds = "v0.9", 3, "go1.25", 9, 1
	then.Began = then.Began.AddDate(-1, 0, 0)
	c, err := report.Compare(sample(), then)
	require.NoError(t, err)
	require.Len(t, c.Rows, 4)
	require.Empty(t, c.Refused)
	for _, r := range c.Rows {
		require.Equal(t, 1.0, r.Ratio)
		require.False(t, r.Clear)
	}
}

func TestCompareTellsClearFromNoise(t *testing.T) {
	then := sample()
	then.Results[0].Total.NS = stats.Of([]float64{10e6, 12e6, 11e6})
	then.Results[1].Total.NS = stats.Of([]float64{6e6, 8e6, 7e6})
	c, err := report.Compare(sample(), then)
	require.NoError(t, err)
	require.InDelta(t, 2.0/11, c.Rows[0].Ratio, 1e-9)
	require.True(t, c.Rows[0].Clear)
	require.InDelta(t, 8.0/7, c.Rows[1].Ratio, 1e-9)
	require.False(t, c.Rows[1].Clear, "the spreads overlap")
	then.Results[0].Total.NS = stats.Of([]float64{10e6, 12e6})
	c, err = report.Compare(sample(), then)
	require.NoError(t, err)
	require.False(t, c.Rows[0].Clear, "two tell nothing")
}

func TestSameMachine(t *testing.T) {
	require.NoError(t, report.SameMachine(sample().Machine, sample().Machine))
	other := sample().Machine
	other.Processors = 8
	require.ErrorContains(t, report.SameMachine(sample().Machine, other), "machine.processors: 2 here, 8 there")
	require.NoError(t, report.SameMachine(report.ThisMachine(), report.ThisMachine()))
}

// What has no ratio is told in a line: how many results, and the first reasons.
func TestNoRatios(t *testing.T) {
	c, err := report.Compare(sample(), sample())
	require.NoError(t, err)
	n, why := c.NoRatios()
	require.Zero(t, n)
	require.Empty(t, why)
	then := sample()
	then.Results[0].Parameters = map[string]string{"work_ms": "100"}
	then.Results[1].Parameters = map[string]string{"a": "1", "b": "2"}
	then.Results[2].Case = "another"
	c, err = report.Compare(sample(), then)
	require.NoError(t, err)
	n, why = c.NoRatios()
	require.Equal(t, 3, n)
	require.Equal(t, "parameters.work_ms: 10 here, 100 there; parameters.a: none here, 1 there; parameters.b: none here, 2 there; and 2 more", why)
}
