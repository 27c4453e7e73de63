package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
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
		require.Len(t, r.Values, 2, "the time, and the bandwidth")
		for _, v := range r.Values {
			require.Equal(t, 1.0, v.Ratio)
		}
	}
}

// measured is a report of one case, of which each turn took the time and had the figures.
func measured(times []float64, figures map[string][]float64, unit report.Unit, names ...string) *report.Report {
	x := report.Result{Scenario: report.Bells, Case: "credit", Where: report.InProcess, Setup: "all"}
	var samples []report.Sample
	for i, ns := range times {
		s := report.Sample{Phases: []report.PhaseSample{{Name: "launch", NS: ns}}}
		for _, n := range names {
			s.Figures = append(s.Figures, report.FigureSample{Name: n, Unit: unit, Value: figures[n][i]})
		}
		samples = append(samples, s)
	}
	x.Sum(samples, nil)
	return &report.Report{Results: []report.Result{x}}
}

// TestVerdicts: each value by its repetitions and by which way is better.
func TestVerdicts(t *testing.T) {
	low, high, mixed := []float64{10, 11, 12, 13}, []float64{20, 21, 22, 23}, []float64{11.5, 22, 9, 14}
	verdict := func(now, then []float64, unit report.Unit, name string) report.ComparedValue {
		c, err := report.Compare(
			measured(now, map[string][]float64{name: now}, unit, name), measured(then, map[string][]float64{name: then}, unit, name))
		require.NoError(t, err)
		require.Len(t, c.Rows[0].Values, 2)
		return c.Rows[0].Values[1]
	}
	for _, c := range []struct {
		unit             report.Unit
		name, less, more string
		better           string
	}{
		{report.Nanoseconds, report.BellStore, "faster", "slower", "less"},
		{report.Nanoseconds, "of tomorrow", "faster", "slower", "less"},
		{report.BytesPerSecond, "of tomorrow", "slower", "faster", "more"},
		{report.EachSecond, "of tomorrow", "slower", "faster", "more"},
		{report.Number, "wakes", "better", "worse", "less"},
		{report.Share, "of tomorrow", "lower", "higher", ""},
	} {
		require.Equal(t, c.less, verdict(low, high, c.unit, c.name).Verdict.String(), c)
		require.Equal(t, c.more, verdict(high, low, c.unit, c.name).Verdict.String(), c)
		require.Equal(t, "within the spread", verdict(low, mixed, c.unit, c.name).Verdict.String(), c)
		require.Equal(t, "within the spread", verdict(low, low, c.unit, c.name).Verdict.String(), c)
		require.Equal(t, "too few to tell", verdict(low[1:], high[1:], c.unit, c.name).Verdict.String(), c)
		require.Equal(t, c.better, verdict(low, high, c.unit, c.name).Better, c)
	}
	require.Equal(t, "too few to tell", verdict(low[1:], high, report.Number, "wakes").Verdict.String())
	require.Equal(t, "better", verdict(low[1:], append(high, 24), report.Number, "wakes").Verdict.String(), "more in one run make up for fewer in the other")
	require.Contains(t, report.AboutComparison[3], "for example 4 in each run")
	require.Equal(t, 2.0, verdict([]float64{2, 2}, []float64{1, 1}, report.Share, "x").Ratio)
	v := verdict([]float64{2, 2}, []float64{-1, -1}, report.Share, "x")
	require.Zero(t, v.Ratio, "a share below zero has none")
	require.Equal(t, "-", v.ShowRatio())
}

// TestComparesFigures: those that both runs have; the others are named. The last line sums up.
func TestComparesFigures(t *testing.T) {
	low, high := []float64{10, 11, 12, 13}, []float64{20, 21, 22, 23}
	now := measured(low, map[string][]float64{"store": low, "wakes": high, "new": low, "work": low}, report.Number, "store", "wakes", "new", "work")
	then := measured(low, map[string][]float64{"store": high, "wakes": low, "old": low, "work": low}, report.Number, "store", "wakes", "old", "work")
	c, err := report.Compare(now, then)
	require.NoError(t, err)
	var names []string
	for _, v := range c.Rows[0].Values {
		names = append(names, v.Name+": "+v.Verdict.String())
	}
	require.Equal(t, []string{"time, end to end: within the spread", "store: better", "wakes: worse", "work: within the spread"}, names)
	text := c.Text()
	require.Regexp(t, `(?m)^ +store +21\.5 +11\.5 +0\.53 +better +less$`, text)
	require.Contains(t, text, "figures: measured here, not measured there\n    bells, credit, process, all: new\n")
	require.Contains(t, text, "Measured there, not here, 1 result:\n    bells, credit, process, all: old\n")
	require.True(t, strings.HasSuffix(text, "\nIn short: times end to end: 0 faster, 0 slower, 1 within the spread; figures: 0 faster, 1 better, 0 slower, 1 worse, 1 within the spread. If nothing had changed, the scatter of repetitions alone would have fewer than one of them differ, on average\n"), text)
	require.Contains(t, text, "busier hour of the machine", "what else has values differ")

	// Too few repetitions tell nothing, and chance has no part in that.
	c, err = report.Compare(measured(low[:2], nil, ""), measured(high[:2], nil, ""))
	require.NoError(t, err)
	require.Equal(t, "In short: times end to end: 0 faster, 0 slower, 0 within the spread, 1 too few to tell", c.Summary())
}

// TestSummaryOfChance: of each value there is as much chance as its repetitions have, which are
// few. 80 values of 4 and 4 make 160/70.
func TestSummaryOfChance(t *testing.T) {
	same := []float64{10, 11, 12, 13}
	of := func(n int) *report.Report {
		figures, names := map[string][]float64{}, []string(nil)
		for i := range n - 1 {
			names = append(names, fmt.Sprint(i))
			figures[names[i]] = same
		}
		return measured(same, figures, report.Number, names...)
	}
	for n, want := range map[int]string{1: "fewer than one of them", 33: "fewer than one of them", 35: "up to 1.0 of them", 80: "up to 2.3 of them"} {
		c, err := report.Compare(of(n), of(n))
		require.NoError(t, err)
		require.Contains(t, c.Summary(), "would have "+want+" differ, on average", n)
	}
}

// TestUnitThatChanged: what has the same name and another unit is not compared, and named.
func TestUnitThatChanged(t *testing.T) {
	low := []float64{10, 11, 12, 13}
	now := measured(low, map[string][]float64{"work": low, "store": low}, report.Nanoseconds, "work", "store")
	then := measured(low, map[string][]float64{"work": low, "store": low}, report.Nanoseconds, "work", "store")
	then.Results[0].Figures[1].Unit = report.Share
	c, err := report.Compare(now, then)
	require.NoError(t, err)
	require.Len(t, c.Rows[0].Values, 2, "the time, and work")
	require.Contains(t, c.Text(), "Not comparable, 1 result:\n  unit: ns here, share there\n    bells, credit, process, all: store\n")
	n, why := c.NoRatios()
	require.Equal(t, 1, n)
	require.Equal(t, "unit: ns here, share there", why)
}

// TestChosenIsNotJudged: a time that somebody chose is shown, and is no verdict, whatever a timer
// made of it. What was measured meanwhile is judged.
func TestChosenIsNotJudged(t *testing.T) {
	of := func(scenario, where, phase string, ns, share float64) *report.Report {
		x := report.Result{Scenario: scenario, Case: "32 guests", Where: where, Setup: "all"}
		var samples []report.Sample
		for i := range 5 {
			samples = append(samples, report.Sample{
				Phases:  []report.PhaseSample{{Name: phase, NS: ns + float64(i)}},
				Figures: []report.FigureSample{{Name: "idle", Unit: report.Share, Value: share + float64(i)/1e4}},
			})
		}
		x.Sum(samples, nil)
		return &report.Report{Results: []report.Result{x}}
	}
	idle := func(ns, share float64) *report.Report { return of("neighbour", report.InProcess, "idle", ns, share) }
	c, err := report.Compare(idle(4e9, 0.01), idle(5e9, 0.02))
	require.NoError(t, err)
	text := c.Text()
	require.Regexp(t, `(?m)^  neighbour +32 guests +all +time, end to end +5\.00 s +4\.00 s +- +chosen$`, text)
	require.Regexp(t, `(?m)^ +idle +2\.0 % +1\.0 % +0\.50 +better +less$`, text)
	require.Contains(t, c.Summary(), "times end to end: 0 faster, 0 slower, 0 within the spread; figures: 0 faster, 1 better, 0 slower, 0 within the spread. ")
	c, err = report.Compare(idle(4e9, 0.01), idle(5e9, 0.01))
	require.NoError(t, err)
	require.Contains(t, c.Summary(), "0 slower, 0 within the spread; figures: 0 faster, 0 slower, 1 within the spread. ")
	for _, x := range []struct {
		scenario, phase string
		want            report.Verdict
	}{{"neighbour", "idle", report.NotJudged}, {report.Accesses, "bandwidth", report.NotJudged}, {report.Accesses, "accesses", report.Faster}} {
		c, err := report.Compare(of(x.scenario, report.InMachine, x.phase, 4e9, 1), of(x.scenario, report.InMachine, x.phase, 5e9, 1))
		require.NoError(t, err)
		require.Equal(t, x.want, c.Rows[0].Values[0].Verdict, x)
	}
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
