package isolation

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// TestResetsAllocateLittle: a guest that resets its GPU again and again makes the server collect no
// garbage worth mentioning, which would cost its neighbours time.
func TestResetsAllocateLittle(t *testing.T) {
	const n = 10
	allocated := func() uint64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.TotalAlloc
	}
	for _, chip := range rig.Chips {
		s := rig.New(t, testserver.SharedConfig{Card: soft.Config{VRAM: 8 << 30}})
		v, err := copier(chip, s.AddChip(chip, aggregator.GuestConfig{Name: "a", Map: aperture.MapAll}), 0)
		require.NoError(t, err)
		defer v.Close()
		before := allocated()
		for range n {
			require.NoError(t, v.Reset())
		}
		require.Less(t, (allocated()-before)/n, uint64(1<<20), "bytes for each reset of a %s", chip.Device.Name())
		require.NoError(t, errors.Join(v.Prepare(), v.Copy()))
	}
}

// TestSavedChannels: a driver that restores an instance block after resets, as after a suspend, finds
// the channel as it was. The next client does not, whatever it restores.
func TestSavedChannels(t *testing.T) {
	whole, err := testserver.New(testserver.Config{Card: soft.Config{VRAM: guestVRAM}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, whole.Close()) })
	for name, socket := range map[string]string{
		"pass-through": whole.Socket(), "virtual": street(t, testserver.SharedConfig{}, 1).GPUs[0].Socket,
	} {
		t.Run(name, func(t *testing.T) {
			block := make([]byte, gf100.InstanceSize)
			// holds binds a channel with the block's token and reports whether subchannels have objects.
			holds := func(g *guest.Guest) bool {
				t.Helper()
				s, err := g.NewSpace()
				require.NoError(t, err)
				ch, err := g.NewChannelWith(1, s, guest.ChannelConfig{RingLog2: 1, Edit: func(b []byte) {
					for _, w := range []gf100.Word{gf100.InstTokenLo, gf100.InstTokenHi} {
						w.Put(b, w.Get(block))
					}
				}})
				require.NoError(t, err)
				method := (&guest.Push{}).Inc(guest.M2MF.Object().Subchan, 0x238, 0).Words
				require.NoError(t, ch.PushBuffer().Write(0x8000, binary.LittleEndian.AppendUint64(nil, uint64(method[1])<<32|uint64(method[0]))))
				require.NoError(t, ch.SubmitAt(ch.PushVA()+0x8000, len(method)))
				require.NoError(t, ch.Finish()) // names objects; the ring begins again
				lost := slices.ContainsFunc(g.Events(), func(e guest.Event) bool { return e.PBDMA != nil })
				require.NoError(t, ch.Stop())
				require.NoError(t, g.Raw().VRAM(ch.Instance(), block))
				return !lost
			}
			attach := func() (g *guest.Guest) {
				require.Eventually(t, func() bool { // the server may not have ended the last client
					g, err = guest.Attach(t.Context(), socket, guest.Config{RAM: 1 << 20, Timeout: rig.Patience})
					return err == nil
				}, wait, tick)
				return g
			}
			g := attach()
			require.False(t, holds(g), "a new channel")
			for range 3 {
				require.NoError(t, g.ResetOnly())
				require.NoError(t, g.Reset())
				require.True(t, holds(g))
			}
			require.NoError(t, g.Close())
			g = attach()
			defer g.Close()
			require.False(t, holds(g), "the next client")
		})
	}
}
