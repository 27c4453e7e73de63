package shim

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// A profile has each warp instruction that the executors count, and finds the loop of a program. On a card that does
// nothing it is empty.
func TestProfile(t *testing.T) {
	data, err := os.ReadFile("testdata/reduce-25.rec")
	require.NoError(t, err)
	for _, idle := range []bool{false, true} {
		r, err := ReadRecording(bytes.NewReader(data))
		require.NoError(t, err)
		var p Profile
		var counted, sum uint64
		cfg := Config{Idle: idle, Ran: func(forms map[*isa.Form]uint64) {
			for _, n := range forms {
				counted += n
			}
		}}
		p.Use(&cfg)
		m, err := NewMachine(cfg)
		require.NoError(t, err)
		require.Equal(t, idle, Replay(m, r) != nil)
		require.NoError(t, m.Close())
		list, share := p.Blocks(), 0.0
		for i, b := range list {
			sum += b.WarpInstructions
			share += b.Share
			require.True(t, i == 0 || b.Share <= list[i-1].Share)
			require.Equal(t, b.WarpInstructions, b.Times*uint64(b.Instructions))
		}
		require.Equal(t, counted, sum)
		var text strings.Builder
		require.NoError(t, p.WriteTable(&text))
		if idle {
			require.Empty(t, list)
			continue
		}
		require.InDelta(t, 100, share, 1e-6)
		require.Contains(t, list[0].First, "set $p0")
		for line := range strings.Lines(text.String()) {
			require.LessOrEqual(t, len(line), 81)
		}
	}
}
