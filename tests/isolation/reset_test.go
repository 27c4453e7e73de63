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
	"github.com/umbra-gpu/umbra/devmodel/guest/gh100"
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

// TestSleepingChannels is TestSavedChannels for a GH100, whose channels are back after a suspend with a
// reset.
func TestSleepingChannels(t *testing.T) {
	r := rig.New(t, testserver.SharedConfig{Card: soft.Config{VRAM: 5 << 30}})
	e := r.AddChip(rig.Hopper, aggregator.GuestConfig{Name: "a"})
	// holds reports whether a subchannel has an object.
	holds := func(ch *gh100.Channel) bool { return ch.Until(ch.Submit(0x2001_6040, 0)) == nil }
	attach := func() (g *guest.Guest, d *gh100.Driver, ch *gh100.Channel) {
		require.Eventually(t, func() (there bool) { // the server may not have ended the last client
			var err error
			g, err = guest.Plug(t.Context(), e.Socket, guest.Config{RAM: 1 << 20, Timeout: rig.Patience})
			return err == nil
		}, wait, tick)
		d = rig.NewHopper(g)
		d.Boot()
		return g, d, d.NewSpace().NewChannel(1, gh100.Graphics)
	}
	g, d, ch := attach()
	ch.Wait(ch.Submit(0x2001_6000, 0x902d))
	for range 3 {
		d.Suspend()
		require.NoError(t, g.Reset())
		d.Resume()
		require.True(t, holds(ch))
	}
	for range 512 - 4 { // the ring begins again, as a new channel's
		ch.Wait(ch.Submit())
	}
	d.Suspend()
	require.NoError(t, g.Close())
	g, _, ch = attach()
	defer g.Close()
	require.False(t, holds(ch), "the next client's, at the same place")
}
