package windows

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/doorbell"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/stand"
)

// ringers are the ways to a guest that rings, with what counts its windows' doings.
var ringers = map[string]func(t *testing.T, mode doorbell.Mode) (*guest.Guest, *homes.Stats){
	"pass-through": func(t *testing.T, mode doorbell.Mode) (*guest.Guest, *homes.Stats) {
		s, err := stand.New(stand.Config{Card: soft.Config{VRAM: vramSize, Map: homes.MapAll, Doorbell: mode}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return attachTo(t, s.Socket()), &s.Card.Stats().Windows
	},
	"virtual": func(t *testing.T, mode doorbell.Mode) (*guest.Guest, *homes.Stats) {
		s, err := stand.NewShared(soft.Config{VRAM: 4 * vramSize}, 0, 0)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		require.NoError(t, s.AddGPU(aggregator.GuestConfig{Name: "a", VRAM: vramSize, Map: homes.MapAll, Doorbell: mode}))
		return attachTo(t, s.GPUs[0].Socket), &s.GPUs[0].Guest.Stats().Mapped
	},
}

func attachTo(t *testing.T, socket string) *guest.Guest {
	g, err := guest.Attach(context.Background(), socket, guest.Config{RAM: 4 << 20, Map: true, Timeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, g.Close()) })
	return g
}

// TestDoorbellsGather: what a processor stores into a place before it rings, an engine finds
// in the page that the place shows, though that lives at another: whether the places are few
// enough for the trap or not, whether it is a trap at all, and whether the channel rests or is
// about to fetch anyway. Nothing else orders memory between the stores and the fence.
func TestDoorbellsGather(t *testing.T) {
	const srcVA, dstVA = 0x1000_0000, 0x2000_0000
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	for name, attach := range ringers {
		for _, mode := range []doorbell.Mode{doorbell.Trap, doorbell.Poll} {
			for what, pages := range map[string]uint64{"few": 4, "many": 2 * homes.AtOnce / page} {
				t.Run(name+" "+mode.String()+" "+what, func(t *testing.T) {
					g, stats := attach(t, mode)
					space, err := g.NewSpace()
					require.NoError(t, err)
					src, err := g.AllocVRAM(pages * page)
					require.NoError(t, err)
					dst, err := g.AllocRAM(pages * page)
					require.NoError(t, err)
					require.NoError(t, space.Map(srcVA, src, guest.Small))
					require.NoError(t, space.Map(dstVA, dst, guest.Small))
					at1, err := src.BAR1()
					require.NoError(t, err)
					_, hide, err := src.BAR3() // where it lives then
					require.NoError(t, err)
					defer func() { require.NoError(t, hide()) }()
					places := g.Mapped(1, at1)[:src.Size]
					ch, err := g.NewChannelWith(1, space, guest.ChannelConfig{RingRAM: true, PushRAM: true})
					require.NoError(t, err)
					require.NoError(t, ch.Finish())
					require.GreaterOrEqual(t, stats.Replicas.Load(), int64(pages))

					n, want := uint32(0), map[uint64]uint32{}
					for round := range rounds {
						for range 1 + round%5*4 { // the channel rests before the first
							n++
							off := rand.Uint64N(pages)*page + rand.Uint64N(page/4)*4
							binary.LittleEndian.PutUint32(places[off:], n)
							want[off] = n
							require.NoError(t, ch.Copy(guest.CopyEngines[0], dstVA+off, srcVA+off, 4))
						}
						require.NoError(t, ch.Finish())
						for off, v := range want {
							require.Equal(t, v, binary.LittleEndian.Uint32(dst.Data[off:]), "round %d, at %#x", round, off)
						}
						clear(want)
					}
					require.NotZero(t, stats.Gathers.Load())
				})
			}
		}
	}
}
