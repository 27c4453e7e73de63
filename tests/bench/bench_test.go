package main

import (
	"bytes"
	"context"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/bench/report"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var update = flag.Bool("update", false, "write the golden file anew")

func newBench() *bench {
	b := &bench{options: options{repeat: 2}, log: io.Discard}
	b.res.Sections = []section{{Name: "x", Title: "Something"}}
	return b
}

func TestTable(t *testing.T) {
	b := newBench()
	b.res.Machine = report.Machine{Processor: "A Processor", Processors: 2, MemoryMiB: 24105, Kernel: "6.18", Go: "go1.26", Load: 0.5}
	b.res.QEMU, b.res.Accel = "11.1.3", "tcg"
	b.section().Notes = []string{"what it means"}
	b.add("round trip", nanoseconds, []float64{11000, 9000, 10000})
	b.add("  ratio", ratio, []float64{1.05, 1.2, 1.02}, nearEcho)
	b.add("  another", ratio, []float64{1.2}, nearEcho)
	b.add("a copy", bandwidth, []float64{15.81})
	b.add("half a nanosecond", nanoseconds, []float64{0.5})
	b.add("a probe", nanoseconds, []float64{2.5e9, 250e6}, below(2e9, "< 2 s"))
	b.add("nothing", nanoseconds, nil)
	b.res.Errors = []string{"qemu: no such thing"}
	text := b.res.text()
	if *update {
		require.NoError(t, os.WriteFile(filepath.Join("testdata", "table.golden"), []byte(text), 0o644))
	}
	want, err := os.ReadFile(filepath.Join("testdata", "table.golden"))
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// Names must leave room for the figures.
func TestNamesFit(t *testing.T) {
	var names []string
	for _, f := range goFigures {
		names = append(names, f.name)
	}
	for _, f := range guestFigures {
		names = append(names, f.name)
	}
	for _, n := range names {
		require.LessOrEqual(t, utf8.RuneCountInString(n), 50, n)
	}
}

func TestGoBenchmarks(t *testing.T) {
	got, err := goBenchmarks(strings.NewReader(`goos: linux
BenchmarkSocketRead-2   	     213	     11297 echo-p50-ns	     1.019 read/echo	       0 allocs/op
BenchmarkSocketRead-2   	     213	     11687 echo-p50-ns	     1.044 read/echo	       0 allocs/op
BenchmarkOther   	     5	     7.5 ns/op
PASS
`))
	require.NoError(t, err)
	require.Equal(t, map[string]map[string][]float64{
		"SocketRead": {"echo-p50-ns": {11297, 11687}, "read/echo": {1.019, 1.044}, "allocs/op": {0, 0}},
		"Other":      {"ns/op": {7.5}},
	}, got)
	_, err = goBenchmarks(strings.NewReader("BenchmarkX-2 1 many ns/op\n"))
	require.Error(t, err)
}

func TestSocket(t *testing.T) {
	b := newBench()
	require.NoError(t, b.socketTimes(t.Context(), 2000))
	byName := map[string]figure{}
	for _, f := range b.section().Figures {
		require.Len(t, f.Values, 2, f.Name)
		byName[f.Name] = f
	}
	require.NotNil(t, byName["  read / echo"].Reached)
	require.Positive(t, byName["1,000 posted writes, each"].Median)
}

// What is timed is verified: every engine moves every size, on every route.
func TestCopies(t *testing.T) {
	b := newBench()
	require.NoError(t, b.copiesOf(t.Context(), soft.Config{}, []uint64{4 << 10, 1 << 20, 12 << 20}))
	require.Len(t, b.section().Figures, 3*(1+len(movers)*len(routes)))
	for _, f := range b.section().Figures {
		require.NotEmpty(t, f.Values, f.Name)
		require.Positive(t, f.Median, f.Name)
	}
}

// The control: engines that do nothing have no bandwidth.
func TestCopiesOfNothing(t *testing.T) {
	b := newBench()
	err := b.copiesOf(t.Context(), soft.Config{DisableEngines: true}, []uint64{4 << 10})
	require.ErrorContains(t, err, "the card moved 0 bytes")
	require.Empty(t, b.section().Figures)
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, newBench().copiesOf(ctx, soft.Config{}, []uint64{4 << 10}), context.Canceled)
	require.ErrorIs(t, newBench().socketTimes(ctx, 200), context.Canceled)
}

func TestUsage(t *testing.T) {
	for _, c := range []struct{ arg, says string }{
		{"--only=protocol,all", `--only has "all"; the sections are protocol, socket, copies, qemu`},
		{"--repeat=0", "--repeat is 0"},
		{"now", "there are no arguments"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, exitUsage, run(t.Context(), []string{c.arg}, io.Discard, &stderr))
		require.Contains(t, stderr.String(), c.says)
	}
}
