package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/metrics"
)

// TestLegends: the registry explains every column, and each line fits a terminal.
func TestLegends(t *testing.T) {
	helps := metrics.Helps()
	for _, w := range append(statusWords, ledgerWords...) {
		require.NotEmpty(t, helps[w.in+"."+w.key], w.column)
	}
	for _, text := range []string{topLegend, legend(append(statusWords, ledgerWords...), "")} {
		require.NotContains(t, text, ": ;")
		for line := range strings.Lines(text) {
			require.LessOrEqual(t, len(line), legendWidth+1, line)
		}
	}
	require.Contains(t, topLegend, "wait: entries that wait;")
	require.Contains(t, strings.Join(strings.Fields(legend(statusWords, "")), " "), "client: its process; traps: reads and writes of the guest that reached the server;")
}
