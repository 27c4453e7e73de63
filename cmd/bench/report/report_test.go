package report_test

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench/report"
	"github.com/umbra-gpu/umbra/cmd/bench/stats"
)

var update = flag.Bool("update", false, "write the golden file anew")

func take(ns float64, counts map[string]float64) report.Sample {
	return report.Sample{
		Phases: []report.PhaseSample{
			{Name: "init", NS: ns / 4, Counts: counts},
			{Name: "launch", NS: ns * 3 / 4, Counts: counts},
		},
		Figures: []report.FigureSample{{Name: "bandwidth", Unit: report.BytesPerSecond, Value: 1e18 / ns}},
	}
}

// sample is a report that has everything.
func sample() *report.Report {
	r := &report.Report{
		Schema: report.Schema, Version: report.Version, Umbra: "v1.2.3", Began: time.Date(2026, 11, 21, 12, 30, 0, 0, time.UTC), Seconds: 12.5,
		Machine:  report.Machine{Processor: "A Processor", Processors: 2, MemoryMiB: 24105, Kernel: "6.18", Go: "go1.26", Load: 0.5},
		Emulator: &report.Emulator{QEMU: "11.1.3", Accelerator: "tcg"},
		Run:      report.Run{Repeat: 3, Boots: 2, BusyBytes: 4096},
		Setups: []report.Setup{
			{Name: report.PassThrough, About: "nothing in between", Options: map[string]string{}},
			{Name: "slow", About: "everything the long way", Options: map[string]string{"server.spin": "50us"}},
		},
		Scenarios: []report.Scenario{{Name: "program", Title: "A program", About: "what programs do"}},
		Model: &report.Model{
			Terms: []report.Term{{Name: "a wake", Count: report.Wakes, NS: 12_345}}, Own: []report.Own{{Phase: "program, 10 ms, init", NS: 1000}}, Residual: 0.12, R2: 0.99, N: 40,
		},
		Errors: []string{"crowd, 32 guests: no memory"},
	}
	base := []report.Sample{
		take(1e6, map[string]float64{report.Reads: 10, report.Writes: 100}),
		take(3e6, map[string]float64{report.Reads: 10, report.Writes: 102}),
		take(2e6, map[string]float64{report.Reads: 10, report.Writes: 101}),
	}
	slow := []report.Sample{
		take(5e6, map[string]float64{report.Reads: 40, report.Writes: 100, report.Scans: 7, report.Examined: 65536}),
		take(9e6, map[string]float64{report.Reads: 40, report.Writes: 100, report.Scans: 7, report.Examined: 65536}),
		take(8e6, map[string]float64{report.Reads: 40, report.Writes: 100, report.Scans: 7, report.Examined: 65536}),
	}
	for _, where := range []string{report.InProcess, report.InMachine} {
		for i, s := range [][]report.Sample{base, slow} {
			x := report.Result{
				Scenario: "program", Case: "10 ms", Where: where, Setup: r.Setups[i].Name, Parameters: map[string]string{"work_ms": "10"},
			}
			x.Sum(s, base)
			r.Results = append(r.Results, x)
		}
	}
	for _, s := range r.Setups {
		r.Traps = append(r.Traps, report.Trap{
			Setup: s.Name, Class: "register read", N: 300, P50: stats.Of([]float64{9000, 11000, 10000}), P99: stats.Of([]float64{30000}),
			Socket: stats.Of([]float64{9500}), Dispatch: stats.Of([]float64{200}), Effect: stats.Of([]float64{50}),
		})
	}
	return r
}

func TestText(t *testing.T) {
	r := sample()
	then := sample()
	r.Results[1].Total.NS = stats.Of([]float64{8e6, 7e6, 8e6, 9e6})
	then.Results[1].Total.NS = stats.Of([]float64{1e6, 1e6, 2e6, 1e6, 1e6})
	then.Results[0].Parameters = map[string]string{"work_ms": "11"}
	c, err := report.Compare(r, then)
	require.NoError(t, err)
	text := r.Text() + "\n" + c.Text()
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join("testdata", "text.golden"), []byte(text), 0o644))
	}
	want, err := os.ReadFile(filepath.Join("testdata", "text.golden"))
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// What was not measured is not explained: no ratio to pass-through without it, and so on. What
// a scenario was not measured with is named.
func TestTextOfSomeSetups(t *testing.T) {
	r := sample()
	require.Contains(t, r.Text(), "ratios to pass-through")
	require.NotContains(t, r.Text(), "same map")
	require.NotContains(t, r.Text(), "Not measured with")
	require.NotContains(t, r.Text(), "reached without a trap")
	r.Results = slices.DeleteFunc(r.Results, func(x report.Result) bool { return x.Setup == report.PassThrough })
	for i := range r.Results {
		r.Results[i].Ratio = nil
	}
	text := r.Text()
	require.NotContains(t, text, "ratios to")
	require.NotContains(t, text, "worst")
	require.Regexp(t, `(?m)^All set-ups in this process: sums over the 1 case that each of them ran$`, text)
	require.Contains(t, text, "  Not measured with pass-through\n")
	r.Setups[1].Options = map[string]string{report.OptMap: "all"}
	require.Contains(t, r.Text(), "  With slow what is mapped is reached without a trap, and has no row; ")
}

// TestParts: phases and figures have a table each, so that one that is called as the other is
// told from it; and below each stands what its columns are.
func TestParts(t *testing.T) {
	rows := []*report.Result{
		{Phases: []report.Phase{{Name: "launch"}}, Figures: []report.Figure{{Name: "store"}}},
		{Phases: []report.Phase{{Name: "store"}, {Name: "launch"}}, Figures: []report.Figure{{Name: "store"}, {Name: "p99"}}},
	}
	parts := report.Parts(rows)
	require.Len(t, parts, 2)
	require.Equal(t, []string{"launch", "store"}, parts[0].Names)
	require.False(t, parts[0].Figure)
	require.Equal(t, []string{"store", "p99"}, parts[1].Names)
	require.True(t, parts[1].Figure)
	require.Empty(t, report.Parts([]*report.Result{{Phases: []report.Phase{{Name: "probe"}}}}), "it is the time")
	parts = report.Parts([]*report.Result{{Figures: []report.Figure{{Name: "store"}, {Name: "p99"}}}})
	require.Len(t, parts, 1, "no phases, no table of them")
	require.True(t, parts[0].Figure)

	x := report.Result{Scenario: report.Bells, Case: "credit", Where: report.InProcess, Setup: "all"}
	x.Sum([]report.Sample{{
		Phases:  []report.PhaseSample{{Name: "store", NS: 5e6}, {Name: "served", NS: 7e6}},
		Figures: []report.FigureSample{{Name: "store", Unit: report.Nanoseconds, Value: 2e3}, {Name: "of tomorrow", Unit: report.Number, Value: 1}},
	}}, nil)
	r := report.Report{Scenarios: []report.Scenario{{Name: report.Bells}}, Results: []report.Result{x}}
	text := r.Text()
	require.Regexp(t, `(?m)^  Phases: .*\n  case    set-up +store   served\n  credit  all     5\.00 ms  7\.00 ms\n    store   GP_PUT is stored many times .*\n    served  the same once more, while the guest sleeps .*\n\n  Figures: `, text)
	require.Regexp(t, `(?m)^  Figures: .*\n  case    set-up +store  of tomorrow\n  credit  all     2\.00 us         1\.00\n    store  one store of GP_PUT, .*\n`, text)
	require.Equal(t, []string{"bells, credit, process, all: figure of tomorrow"}, r.Undescribed())
}

// Each column is described once, and a pattern takes what it stands for.
func TestColumns(t *testing.T) {
	for _, c := range report.Columns {
		where := c.Where
		if where == "" {
			where = report.InProcess
		}
		require.NotEmpty(t, c.About)
		require.False(t, c.Figure && c.Better == report.Chosen, "%s, %s: a figure is measured", c.Scenario, c.Name)
		require.Equal(t, c.About, report.ColumnOf(c.Scenario, where, c.Name, c.Figure).About, "%s, %s: another one takes it", c.Scenario, c.Name)
	}
	for name, pattern := range map[string]string{
		"ram to vram": "* to *", "BAR1 read": "BAR* read", "BAR3 write / RAM": "BAR* / RAM", "bar0-read NV_PMC_BOOT_0": "bar0-*", "bar1-write vram": "bar1-*", "RAM read": "RAM *",
	} {
		scenario := report.Accesses
		if pattern == "* to *" {
			scenario = "copy"
		}
		c := report.ColumnOf(scenario, report.InMachine, name, true)
		require.NotNil(t, c, name)
		require.Equal(t, pattern, c.Name)
	}
	require.Nil(t, report.ColumnOf(report.Accesses, report.InMachine, "BAR1 read twice", true))
	require.Nil(t, report.ColumnOf(report.Accesses, report.InProcess, "RAM read", true))
}

// A ratio is of the same turn: a machine that is slow for a while is slow for both.
func TestRatioIsOfTheSameTurn(t *testing.T) {
	var base, slow []report.Sample
	for _, mood := range []float64{1, 10, 100, 3, 5} {
		base, slow = append(base, take(1e6*mood, nil)), append(slow, take(2e6*mood, nil))
	}
	var x report.Result
	x.Sum(slow, base)
	require.Equal(t, 2.0, x.Ratio.Median)
	require.Zero(t, x.Ratio.MAD)
	require.NotZero(t, x.Total.NS.MAD)
	var alone report.Result
	alone.Sum(slow, nil)
	require.Nil(t, alone.Ratio)
}

// What a set-up does not count is missing, and is never summed up as zero.
func TestCountsThatAreNotThere(t *testing.T) {
	r := sample()
	require.NotContains(t, r.Results[0].Total.Counts, report.Scans)
	require.Equal(t, 14.0, r.Results[1].Total.Counts[report.Scans].Median, "two phases of 7")
	rows := r.Ablation(report.InProcess)
	require.Len(t, rows, 2)
	require.NotContains(t, rows[0].Counts, report.Scans)
	require.Equal(t, 4.0, rows[1].Mean, "the median of 5, 3 and 4 times")
	require.Equal(t, "program, 10 ms", rows[1].WorstCase)
}

// Sums over cases that some set-up has not gone through would compare nothing.
func TestAblationIsOverCommonCases(t *testing.T) {
	r := sample()
	x := r.Results[1]
	x.Case = "32 guests"
	r.Results = append(r.Results, x)
	require.Equal(t, sample().Ablation(report.InProcess), r.Ablation(report.InProcess))
}

// The same mapping is judged by scenario: one with many cases is not worse for that, nor
// one whose cases are noisy.
func TestSameMap(t *testing.T) {
	r := &report.Report{Setups: []report.Setup{
		{Name: "card", Whole: true, Options: map[string]string{report.OptWholeMap: "all"}},
		{Name: report.Naive, Options: map[string]string{report.OptMap: "none"}},
		{Name: "all", Options: map[string]string{report.OptMap: "all"}},
	}}
	add := func(scenario, name string, times ...float64) {
		for i, ns := range times {
			x := report.Result{Scenario: scenario, Case: name, Where: report.InMachine, Setup: r.Setups[i].Name}
			x.Sum([]report.Sample{take(ns, nil), take(10*ns, nil)}, nil)
			r.Results = append(r.Results, x)
		}
	}
	add("probe", "", 100, 300, 120)
	add("copy", "small", 100, 800, 200)
	add("copy", "large", 100, 800, 50)
	rows := r.Ablation(report.InMachine)
	require.Len(t, rows, 3)
	require.Zero(t, rows[0].SameMean, "against itself")
	require.Zero(t, rows[1].SameMean, "nothing is mapped")
	require.InDelta(t, math.Cbrt(1.2*2*0.5), rows[2].SameMean, 1e-9)
	require.InDelta(t, 1.2, rows[2].SameWorst, 1e-9, "the copies are 1 together")
	require.Equal(t, "probe", rows[2].SameWorstOf)
	require.InDelta(t, math.Cbrt(3*8*8), rows[0].NaiveMean, 1e-9)
	require.InDelta(t, math.Cbrt(2.5*4*16), rows[2].NaiveMean, 1e-9)
	require.Zero(t, rows[1].NaiveMean)

	// The scenarios by themselves: in machines alone, and without the one that has no cases.
	r.Scenarios = []report.Scenario{{Name: "probe"}, {Name: "storm"}, {Name: "copy"}}
	require.Regexp(t, `(?m)^  scenario  all / card  naive / all\n  probe +1\.20 +2\.50\n  copy +1\.00 +8\.00\n$`, r.Text())
	require.Equal(t, 1, strings.Count(r.Text(), "By scenario"))
}

// TestFiguresWithIntervals: what was taken many times in each turn is shown with the interval
// of its median, or says that the values are too few for one; what was taken once is shown as
// it is.
func TestFiguresWithIntervals(t *testing.T) {
	var values []float64
	for i := range 20 {
		values = append(values, float64(2*i-10)/1000)
	}
	for _, c := range []struct {
		turns, values int
		want          string
		few           bool
	}{
		{2, 2, "-0.9 %", false},
		{6, 6, "-0.5 %", false},
		{1, 2, "-0.9 % (of 2)", true},
		{2, 4, "-0.7 % (of 4)", true},
		{3, 6, "-0.5 % (-1.0 % to 0.0 %)", false}, // as --quick has them
		{3, 20, "0.9 % (0.0 % to 1.8 %)", false},
		{20, 20, "0.9 % (0.0 % to 1.8 %)", false},
	} {
		x := report.Result{Scenario: "neighbour", Case: "beside", Where: report.InProcess, Setup: "all", Figures: []report.Figure{{Name: "slowdown", Unit: report.Share, Value: stats.Of(values[:c.values])}}}
		x.Total.NS.N = c.turns
		require.Equal(t, c.want, x.Show(&x.Figures[0]), c)
		x.Phases = []report.Phase{{Name: "alone"}, {Name: "beside"}}
		r := report.Report{Scenarios: []report.Scenario{{Name: "neighbour"}}, Results: []report.Result{x}}
		require.Contains(t, r.Text(), c.want)
		require.Equal(t, c.few, strings.Contains(r.Text(), fmt.Sprintf("Of slowdown there are %d values, and an interval that holds their median 19 times in 20 takes 6", c.values)), c)
	}
}

func TestRoundTrip(t *testing.T) {
	var b strings.Builder
	require.NoError(t, sample().Encode(&b))
	r, err := report.Decode(strings.NewReader(b.String()))
	require.NoError(t, err)
	require.Equal(t, sample(), r)
}

func TestDecodeRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"":                                      "not a report of umbra bench: unexpected end",
		"{}":                                    `its schema is "", want "umbra-bench"`,
		`{"schema":"umbra-bench","version":99}`: "a report of version 99; this program reads version 3: measure again",
		`{"schema":"umbra-bench","version":2}`:  "a report of version 2; this program reads version 3 (what was map_moves there is map_pages_moved",
		`{"schema":"umbra-bench","version":3,"results":7}`: "not a report of umbra bench",
	} {
		_, err := report.Decode(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
}

func TestShow(t *testing.T) {
	for _, c := range []struct {
		got, want string
	}{
		{report.ShowTime(0), "0 ns"}, {report.ShowTime(9.999), "10.0 ns"}, {report.ShowTime(999.7), "1.00 us"}, {report.ShowTime(1234567), "1.23 ms"},
		{report.ShowTime(61e9), "61.0 s"}, {report.ShowTime(-1500), "-1.50 us"},
		{report.ShowCount(0), "0"}, {report.ShowCount(999.6), "1,000"}, {report.ShowCount(-1234567), "-1,234,567"},
		{report.ShowRatio(0.954), "0.95"}, {report.ShowRatio(12345), "12,345"},
		{report.Share.Show(0.0123), "1.2 %"}, {report.BytesPerSecond.Show(2.5e9), "2.50 GB/s"}, {report.EachSecond.Show(1e6), "1,000,000/s"},
	} {
		require.Equal(t, c.want, c.got)
	}
}
