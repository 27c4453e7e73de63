package isolation

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/push"
)

// TestRefusedMethods has engines refuse the attacker's methods. The engines still serve the
// victim; the attacker's own registers report the error, and its channel continues when its
// driver has handled it.
func TestRefusedMethods(t *testing.T) {
	w := ward(t)
	g := w.Attacker.Guest
	require.NoError(t, g.Reset())
	s, err := g.NewSpace()
	require.NoError(t, err)
	raw := g.Raw()
	require.NoError(t, raw.SetReg(0x40013c, ^uint32(0)))
	for _, r := range []uint32{0x104010, 0x10401c, 0x105010, 0x10501c} {
		require.NoError(t, raw.SetReg(r, 1<<6))
	}
	for i, e := range []struct {
		subch    push.Subchan
		reg, bit uint32
		ack      [][2]uint32
	}{
		{2, 0x400100, 1 << 4, [][2]uint32{{0x400100, ^uint32(0)}, {0x400500, 0x10001}}},
		{4, 0x104008, 1 << 6, [][2]uint32{{0x104004, 1 << 6}}},
		{5, 0x105008, 1 << 6, [][2]uint32{{0x105004, 1 << 6}}},
	} {
		ch, err := g.NewChannel(20+i, s)
		require.NoError(t, err)
		var p guest.Push
		require.NoError(t, ch.Submit(p.Inc(e.subch, 0x1ff8, 0xbad).Words...))
		f, err := ch.Fence()
		require.NoError(t, err)
		require.Eventually(t, func() bool { return raw.Reg(e.reg)&e.bit != 0 }, wait, tick, "%06x", e.reg)
		before := w.Copies()
		require.Eventually(t, func() bool { return w.Copies() > before+20 }, wait, tick, "the victim makes no progress")
		done, err := f.Done()
		require.NoError(t, err)
		require.False(t, done, "the channel waits for its driver")
		for _, a := range e.ack {
			require.NoError(t, raw.SetReg(a[0], a[1]))
		}
		require.NoError(t, g.Poll(f))
		require.NoError(t, ch.Close())
	}
	require.Equal(t, uint64(3), w.Endpoint.Guest.Stats().Channels.EngineErrors.Load())
	require.Zero(t, w.GPUs[1].Guest.Stats().Channels.EngineErrors.Load())
	require.Empty(t, w.Violations())
}
