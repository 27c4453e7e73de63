package main

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestInterrupted: what was cut short says so in a user's words, and that it failed.
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
		require.Contains(t, stderr.String(), "umbra: interrupted, before it was done\n", args)
		require.NotContains(t, stderr.String(), "context canceled", args)
	}
}
