package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/bench"
)

// TestInterrupted: an interrupted command says so, and its exit code is that of a failure.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"bench", "--in-process", "--quick", "--only", "contexts", "--out", "none"},
		{"bench", "--in-process", "--quick", "--only", "traps", "--out", "none"},
		{"sched", "simulate"},
		{"status", "--control", "none.sock"},
	} {
		var stderr bytes.Buffer
		require.Equal(t, exitFailed, doMain(ctx, args, io.Discard, &stderr), args)
		require.Contains(t, stderr.String(), "umbra: interrupted before it was done\n", args)
		require.NotContains(t, stderr.String(), "context canceled", args)
	}
}

// cutter ends what is written to it as soon as a text is there.
type cutter struct {
	bytes.Buffer
	at  string
	cut context.CancelFunc
}

func (c *cutter) Write(p []byte) (int, error) {
	n, err := c.Buffer.Write(p)
	if strings.Contains(c.String(), c.at) {
		c.cut()
	}
	return n, err
}

// TestInterruptedBench checks that a run that is interrupted writes what it has under another name
// than a whole run.
func TestInterruptedBench(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("umbra-bench.txt", []byte("of a whole run"), 0o644))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stderr := &cutter{at: "traps register-read", cut: cancel} // contexts are measured
	args := []string{"bench", "--in-process", "--quick", "--only", "contexts,traps", "--setups", "naive+lazy", "--repeat", "1"}
	require.Equal(t, exitFailed, doMain(ctx, args, io.Discard, stderr), stderr.String())
	require.Contains(t, stderr.String(), "umbra: interrupted before it was done\n")
	require.Contains(t, stderr.String(), "wrote umbra-bench.partial.txt\n")
	text, err := os.ReadFile("umbra-bench.txt")
	require.NoError(t, err)
	require.Equal(t, "of a whole run", string(text))
	f, err := os.Open("umbra-bench.partial.txt")
	require.NoError(t, err)
	defer f.Close()
	r, err := bench.Read(f)
	require.NoError(t, err)
	require.NotEmpty(t, r.Lines)
	require.Equal(t, []string{"the run was interrupted"}, r.Errors)
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing is left behind")
}

// TestBenchLosesItsFile checks that the table is there, and the file's error, if the file cannot be
// put in place after all.
func TestBenchLosesItsFile(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("results", 0o755))
	var stdout bytes.Buffer
	stderr := &cutter{at: "contexts contexts=1", cut: func() { os.RemoveAll("results") }}
	args := []string{"bench", "--in-process", "--quick", "--only", "contexts", "--setups", "naive+lazy", "--repeat", "1", "--out", "results/x.txt"}
	require.Equal(t, exitFailed, doMain(t.Context(), args, &stdout, stderr), stderr.String())
	require.Contains(t, stdout.String(), "\ncontexts  ")
	require.Contains(t, stderr.String(), "results/x.txt")
	require.NotContains(t, stderr.String(), "wrote")
}

// broken is a standard output that nobody reads any more.
type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

// TestBenchWritesWhatItCan checks that the results are in their file, also behind a link, if the
// table cannot be written.
func TestBenchWritesWhatItCan(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.WriteFile("last.txt", []byte("of a run before"), 0o644))
	require.NoError(t, os.Symlink("last.txt", "umbra-bench.txt"))
	var stderr bytes.Buffer
	args := []string{"bench", "--in-process", "--quick", "--only", "contexts", "--setups", "naive+lazy", "--repeat", "1"}
	require.Equal(t, exitFailed, doMain(t.Context(), args, broken{}, &stderr))
	require.Contains(t, stderr.String(), io.ErrClosedPipe.Error())
	text, err := os.ReadFile("last.txt")
	require.NoError(t, err)
	require.Contains(t, string(text), "BenchmarkContexts/")
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, entries, 2, "nothing is left behind")
}
