package windows

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestMovesLoseNoByte: while pages move to and from BAR3, a processor stores into them
// through BAR1 and engines through their tables, each byte once. In the end every byte
// is there.
func TestMovesLoseNoByte(t *testing.T) {
	const (
		pages, both  = 48, 24 // both are in BAR1 too; the others move in and out together
		half, chunk  = page / 2, 64
		toVA, fromVA = 0x1000_0000, 0x2000_0000
	)
	s, err := testserver.New(testserver.Config{
		Card: soft.Config{VRAM: vramSize}, Windows: passthrough.Config{Map: aperture.MapBAR1 | aperture.MapBAR3},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	g := attachTo(t, s.Socket())
	space, err := g.NewSpace()
	require.NoError(t, err)
	from, err := g.AllocRAM(pages * half)
	require.NoError(t, err)
	require.NoError(t, space.Map(fromVA, from, guest.Small))
	var to [both + 1]*guest.Buffer
	var mem [both][]byte
	for i := range to {
		size := uint64(page)
		if i == both {
			size = (pages - both) * page
		}
		to[i], err = g.AllocVRAM(size)
		require.NoError(t, err)
		require.NoError(t, space.Map(toVA+uint64(i)*page, to[i], guest.Small))
		if i < both {
			at, err := to[i].BAR1()
			require.NoError(t, err)
			mem[i] = g.Mapped(1, at)[:page]
		}
	}
	ch, err := g.NewChannelWith(1, space, guest.ChannelConfig{RingLog2: 12, Push: 256 << 10})
	require.NoError(t, err)

	stats := s.Device.Shown()
	var hide [both + 1]func() error // of the buffers that are in BAR3
	toggle := func(i int) {
		if hide[i] == nil {
			_, hide[i], err = to[i].BAR3()
			require.NoError(t, err)
			return
		}
		require.NoError(t, hide[i]())
		hide[i] = nil
	}
	for round := range uint32(scale.Of(4, 12)) {
		want := make([]byte, pages*page)
		for i := 0; i < len(want); i += 4 {
			if i < both*page || i%page < half {
				binary.LittleEndian.PutUint32(want[i:], round<<24|uint32(i)+1)
			}
		}
		for i := range pages {
			copy(from.Data[i*half:], want[i*page:][:half])
		}
		var done atomic.Bool
		go func() { // the processor: the second half of each page
			defer done.Store(true)
			for _, k := range rand.Perm(both * half / chunk) {
				at := half + k*chunk%half
				for i := at; i < at+chunk; i += 4 {
					binary.LittleEndian.PutUint32(mem[k*chunk/half][i:], binary.LittleEndian.Uint32(want[k*chunk/half*page+i:]))
				}
				for range 4000 { // a processor that does something else
					done.Load()
				}
			}
		}()
		before := stats.PagesMoved.Load()
		for order := rand.Perm(pages * half / chunk); !done.Load() || len(order) > 0; { // the engines: the first half
			for _, k := range order[:min(16, len(order))] {
				off := uint64(k*chunk/half*page + k*chunk%half)
				require.NoError(t, ch.Copy(guest.CE0, toVA+off, fromVA+uint64(k*chunk), chunk))
			}
			order = order[min(16, len(order)):]
			for range 4 {
				toggle(rand.IntN(both))
			}
			toggle(both)
		}
		require.NoError(t, ch.Finish())
		g.Raw().Reg(regFlush)
		for i, b := range to {
			got, at := make([]byte, b.Size), i*page
			require.True(t, s.Card.ReadVRAM(b.Addr, got))
			require.Equal(t, want[at:][:b.Size], got, "round %d, buffer %d, in memory", round, i)
			if i < both {
				require.Equal(t, want[at:][:page], append([]byte(nil), mem[i]...), "round %d, in the window", round)
			}
		}
		require.Greater(t, stats.PagesMoved.Load(), before, "pages moved during the copies")
	}
	require.Zero(t, stats.TooFast.Load())
}
