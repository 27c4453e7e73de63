package aggregator

import (
	"github.com/umbra-gpu/umbra/aggregator/card"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// TestInstanceBlockBits: of a guest's instance block only the bits of these fields arrive on the
// card, whatever the others are.
func TestInstanceBlockBits(t *testing.T) {
	may := make([]byte, gf100.InstanceSize)
	for _, w := range []gf100.Word{
		gf100.InstGPGet, gf100.InstRef, gf100.InstGPBaseLo, gf100.InstGPBaseHi, gf100.InstGPLimit2, gf100.InstLimitLo, gf100.InstLimitHi,
	} {
		w.Put(may, ^uint32(0))
	}
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "before")
	g = addGuestWith(t, a, GuestConfig{Channels: 5})
	onCard := func(t tester, block []byte) []byte {
		gf100.InstUSERDLo.Put(block, userdAt>>12) // else it is refused
		gf100.InstUSERDHi.Put(block, 0)
		gf100.InstUSERDTarget.Put(block, 0)
		g.Bind(1, 0)
		settle(g)
		require.True(t, g.mem.Write(shadowpt.VRAM, instAt, block))
		bindAt(g, 1, instAt)
		settle(g)
		b := make([]byte, gf100.InstanceSize)
		f.ReadVRAM(instance(t, f, g, 1), b)
		ch := g.cardChannel(1)
		userd, _ := gf100.InstanceUSERD(b)
		dir, _, _ := gf100.InstanceSpace(b)
		require.True(t, slices.ContainsFunc(g.Tables(), func(r card.Run) bool { return dir >= r.Addr && dir-r.Addr < r.Size }))
		require.Equal(t, []uint64{ch.Card().USERD().Addr, 1, 5, gf100.InstanceSignature},
			[]uint64{userd, uint64(gf100.InstOwner.Get(b)), uint64(gf100.InstKeep.Get(b)), uint64(gf100.InstSignature.Get(b))})
		for _, w := range []gf100.Word{
			gf100.InstUSERDLo, gf100.InstUSERDHi, gf100.InstPDBLo, gf100.InstPDBHi, gf100.InstOwner, gf100.InstKeep, gf100.InstSignature,
		} {
			w.Put(b, 0)
		}
		return b
	}
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.SliceOfN(rapid.Byte(), gf100.InstanceSize, gf100.InstanceSize).Draw(t, "block")
		flip := rapid.Bool().Draw(t, "flip") // rapid draws few set bits
		for i := range block {
			if flip {
				block[i] = ^block[i]
			}
		}
		for i, b := range onCard(t, block) {
			require.Equal(t, block[i]&may[i], b, "byte %#x", i)
		}
	})
}

// TestSavedStateToken: a channel that is bound again in the same block continues with the state that
// the card saved, also after resets. A new channel in that block does not, nor one with a token of the
// guest's own, nor the next client's.
func TestSavedStateToken(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	const named = 0x1122_3344_5566_7788
	resets := func() {}
	again := func(edit func(block []byte)) uint64 {
		g.Bind(1, 0)
		settle(g)
		block := make([]byte, gf100.InstanceSize)
		require.True(t, g.mem.Read(shadowpt.VRAM, instAt+gf100.InstanceSize, block))
		resets()
		edit(block)
		require.True(t, g.mem.Write(shadowpt.VRAM, instAt+gf100.InstanceSize, block))
		bindAt(g, 1, instAt+gf100.InstanceSize)
		settle(g)
		return g.cardChannel(1).Card().State().Token
	}
	put := func(block []byte, token uint64) {
		gf100.InstTokenLo.Put(block, uint32(token))
		gf100.InstTokenHi.Put(block, uint32(token>>32))
	}
	require.Zero(t, again(func(block []byte) { put(block, named) }), "the guest's own")
	put(f.Bytes[instance(t, f, g, 1):], named) // the card saves the channel
	same := func([]byte) {}
	require.Equal(t, uint64(named), again(same))
	resets = func() { require.NoError(t, g.Reset()) }
	for range 3 {
		require.Equal(t, uint64(named), again(same), "a guest that wakes up")
	}
	require.Zero(t, again(func(block []byte) { put(block, 0) }), "a new channel")
	put(f.Bytes[instance(t, f, g, 1):], named)
	resets = func() { require.NoError(t, g.Reset()); g.Forget() }
	require.Zero(t, again(same), "the next client")
}

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
	g.mu.Lock()
	g.channels.Listed.Add(2)
	g.mu.Unlock()
	bindAt(g, 2, writeInstance(t, g, 2, dirAt, 0))
	g.Enable(2, true)
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
	require.Equal(t, []uint64{1, 2}, []uint64{g.stats.FIFO.BadInstance.Load(), g.stats.FIFO.BadUSERD.Load()})
	for _, entries := range []uint32{128, 0} { // of an empty one nothing has to be read
		g.Runlist(end>>12, entries)
		settle(g)
		require.Equal(t, uint64(1), g.stats.BadRunlist.Load())
	}
	require.Eventually(t, ev.saw(func() bool { return ev.unlisted == 1 }), patience, tick)
	require.Empty(t, g.channels.CardChannels())
}
