package aggregator

import (
	"testing"

	"github.com/stretchr/testify/require"

	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestNewChannelsRunAfterTheInvalidate: a channel that is bound in a space whose tables changed
// runs when the card has dropped its old translations.
func TestNewChannelsRunAfterTheInvalidate(t *testing.T) {
	a, f := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{})
	other, _ := addGuest(t, a, "b")
	writeEntry(t, g, dirAt, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: 0x300000}}.Encode())
	writeEntry(t, g, 0x300000, shadowpt.PTE{Valid: true}.Encode())
	bindChannel(t, g, 1)
	writeEntry(t, g, 0x300000, 0)
	f.Hold(invalidates, true)
	listed(t, g, 2)
	bindAt(g, 2, writeInstance(t, g, 2, dirAt, 0))
	gpu(g).Channel(2, devgf100.Enable, 1)
	f.Forget()
	require.Eventually(t, func() bool { return len(f.WritesTo(regInvalidate, 4)) > 0 }, patience, tick)
	bindChannel(t, other, 1) // whose commit is not to list it
	require.ElementsMatch(t, []uint32{uint32(number(g, 1)), uint32(number(other, 1))}, f.Runlist())
	f.Hold(invalidates, false)
	settleRound(g)
	require.Contains(t, f.Runlist(), uint32(number(g, 2)))
	require.True(t, f.Enabled(number(g, 2)))
}

// TestBadStructures: a channel whose structures are outside its guest's memory is not bound, and a runlist
// outside is empty. Both are counted and reported.
func TestBadStructures(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	block := make([]byte, gf100.InstanceSize)
	const end = 4 << 20
	for i, c := range []struct {
		inst, userd uint64
		target      uint32
	}{{end, userdAt, 0}, {instAt, end, 0}, {instAt, userdAt, 2}} {
		gf100.InstUSERDLo.Put(block, uint32(c.userd>>12))
		gf100.InstUSERDTarget.Put(block, c.target)
		require.True(t, g.mem.Write(shadowpt.VRAM, instAt, block))
		bindAt(g, 1, c.inst)
		settle(g)
		require.Eventually(t, ev.saw(func() bool { return ev.unbound == i+1 }), patience, tick)
	}
	require.Equal(t, []uint64{1, 2}, []uint64{g.stats.Channels.BadInstance.Load(), g.stats.Channels.BadUSERD.Load()})
	for _, entries := range []uint32{128, 0} { // of an empty one nothing has to be read
		gpu(g).Runlist(end>>12, entries)
		settle(g)
		require.Equal(t, uint64(1), g.stats.Channels.BadRunlist.Load())
	}
	require.Eventually(t, ev.saw(func() bool { return ev.unlisted == 1 }), patience, tick)
	require.Empty(t, g.channels.CardChannels())
}

// TestChannelsAreFreedAfterTheInvalidate: a channel that left, with its space, keeps its number of the card
// until the card has dropped the old translations.
func TestChannelsAreFreedAfterTheInvalidate(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	f.Forget()
	f.Hold(invalidates, true)
	gpu(g).Channel(1, devgf100.Bind, 0)
	require.Eventually(t, func() bool { return len(f.WritesTo(regInvalidate, 4)) > 0 }, patience, tick)
	require.Len(t, g.channels.CardChannels(), 1)
	f.Hold(invalidates, false)
	settle(g)
	require.Empty(t, g.channels.CardChannels())
}
