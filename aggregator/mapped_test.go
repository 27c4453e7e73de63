package aggregator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/homes"
)

// TestMappedWindowOutside: whoever looks behind its memory is counted, whether its
// accesses trap or not, and only then.
func TestMappedWindowOutside(t *testing.T) {
	for _, c := range []struct {
		name           string
		mapped         homes.Map
		points, access uint64 // what is counted for each
	}{
		{"trapped", homes.MapNone, 0, 1},
		{"mapped", homes.MapAll, 1, 1}, // a client need not map what it is offered
		{"others mapped", homes.MapBAR1 | homes.MapBAR3, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, _ := newAgg(t, Options{})
			g := addGuestWith(t, a, GuestConfig{Map: c.mapped})
			openWindows(t, g)
			last := uint32((g.extents.size - 1) >> 16)
			word := make([]byte, 4)
			g.SetPRAMIN(last)
			g.ReadPRAMIN(last, 0, word)
			g.SetPRAMIN(2<<24 | last + 1) // system memory
			require.Zero(t, g.stats.BadWindow.Load())
			for _, win := range []uint32{last + 1, 1<<24 - 1} {
				before := g.stats.BadWindow.Load()
				g.SetPRAMIN(win)
				require.Equal(t, before+c.points, g.stats.BadWindow.Load())
				g.ReadPRAMIN(win, 0, word)
				require.Equal(t, before+c.points+c.access, g.stats.BadWindow.Load())
			}
		})
	}
}
