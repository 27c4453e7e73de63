package main

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// TestGPUText: counts that are not zero, times with units, and each reason for inexact windows once.
func TestGPUText(t *testing.T) {
	var b strings.Builder
	gpuText(&b, &api.GPUReport{UnmapTime: 1234567 * time.Nanosecond, GPU: api.GPU{
		Counts:      map[string]uint64{"unmaps": 29, "scans": 0},
		RulesBroken: map[string]uint64{"bad_window": 3},
		Inexact: []api.InexactWindow{
			{Name: "map_inexact_pages", Window: "bar3", Count: 2, Reason: "too many", Consequence: "they are lost"},
			{Name: "map_inexact_pages", Window: "bar1", Count: 40, Reason: "too many", Consequence: "they are lost"},
		},
	}})
	require.Equal(t, `
Counts of the guest
  name    count
  unmaps  29

Rules that the guest broke
  name        count
  bad_window  3

Mapped windows that were not exact
  count              window  pages
  map_inexact_pages  bar3    2
  map_inexact_pages  bar1    40
  map_inexact_pages: too many; they are lost

Time until the card released memory that the client unmapped: 1.23ms
`, b.String())
}

// TestRegistersFitTerminal: the registers are no wider than their terminal, and lose no word.
func TestRegistersFitTerminal(t *testing.T) {
	table, err := serve.Registers()
	require.NoError(t, err)
	table.Rows[0].Reads, table.Rows[0].Time = 7, 1500*time.Nanosecond
	for _, width := range []int{76, 132} {
		text := registersText(&table, true, width)
		lines, _, _ := strings.Cut(text, "\n\n")
		for line := range strings.Lines(lines) {
			require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, "\n")), width)
		}
		words := strings.Join(strings.Fields(text), " ")
		for _, r := range table.Rows {
			require.Contains(t, text, r.Register)
			require.Contains(t, words, r.Effect)
		}
	}
}
