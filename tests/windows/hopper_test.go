package windows

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestHopperWindows: while a driver of a GH100 moves pages of BAR1 and PRAMIN, what it stores through one
// window, mapped or trapped, is what all that show the page have, after a flush.
func TestHopperWindows(t *testing.T) {
	const pages, slots = 8, 6
	for _, m := range []aperture.Map{aperture.MapNone, aperture.MapAll} {
		t.Run(m.String(), func(t *testing.T) {
			r := rig.New(t, testserver.SharedConfig{Card: soft.Config{VRAM: 5 << 30}})
			e := r.AddChip(rig.Hopper, aggregator.GuestConfig{Name: "a", Map: m})
			g, err := guest.Plug(t.Context(), e.Socket, guest.Config{RAM: 1 << 20, Map: true})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, g.Close()) })
			rapid.Check(t, func(t *rapid.T) {
				require.NoError(t, g.Reset())
				d := rig.NewHopper(g)
				d.Boot()
				at := d.AllocVRAM(pages * page)
				var memory [pages][8]byte
				var off [slots]uint64
				var shown [slots]int
				for i := range off {
					off[i] = d.MapBAR1(at)
				}
				for range rapid.IntRange(1, 60).Draw(t, "operations") {
					i, k := rapid.IntRange(0, slots-1).Draw(t, "slot"), rapid.IntRange(0, pages-1).Draw(t, "page")
					data := [8]byte(rapid.SliceOfN(rapid.Byte(), 8, 8).Draw(t, "data"))
					switch rapid.IntRange(0, 2).Draw(t, "operation") {
					case 0:
						shown[i] = k
						d.Show(off[i], at+uint64(k)*page)
					case 1:
						memory[shown[i]] = data
						g.WriteBAR(1, off[i]+64, data[:])
					case 2:
						memory[k] = data
						d.WriteVRAM(at+uint64(k)*page+64, data[:])
					}
					d.Write32(regFlush, 1)
					for i := range off {
						g.ReadBAR(1, off[i]+64, data[:])
						require.Equal(t, memory[shown[i]], data, "place %d", i)
					}
				}
			})
			require.Equal(t, m != aperture.MapNone, e.Guest.Stats().Windows.Mapped.PagesMoved.Load() > 0)
		})
	}
}
