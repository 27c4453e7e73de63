package aggregator

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	face "github.com/umbra-gpu/umbra/aggregator/face/gf100"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
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

// givenFace is a face whose channel 2 uses a space that nobody shadows.
type givenFace struct {
	*face.Face
	space card.Space
}

func (g *givenFace) Describe(id uint32) (channels.Description, bool) {
	d, ok := g.Face.Describe(id)
	if id == 2 {
		d.Given = g.space
	}
	return d, ok
}

// TestGivenMapping: a channel whose mapping is given has no shadow. Like any other it is freed after an
// invalidate.
func TestGivenMapping(t *testing.T) {
	a, f := newAgg(t, Options{})
	given := &givenFace{Face: face.New(newRecorder())}
	g, err := a.AddGuest(GuestConfig{Name: "a", VRAM: 4 << 20, Tables: 1 << 20}, given)
	require.NoError(t, err)
	given.Connect(g)
	bindChannel(t, g, 1)
	given.space, err = g.share.NewSpace()
	require.NoError(t, err)
	bindChannelAt(t, g, 2, dirAt+shadowpt.DirSize)
	dir := directory(t, f, g, 2)
	require.NotEqual(t, directory(t, f, g, 1), dir)
	require.EqualValues(t, 1, g.stats.Shadow.Rebuilds.Load())
	f.Hold(invalidates, true)
	f.Forget()
	gpu(g).Channel(2, devgf100.Bind, 0)
	named := regWrite{Reg: fakecard.Reg("NV_PFB_PRI_MMU_INVALIDATE_PDB"), V: uint32(dir >> 12 << 4)}
	require.Eventually(t, func() bool { return slices.Contains(f.WritesTo(named.Reg, 4), named) }, patience, tick)
	require.Len(t, g.channels.CardChannels(), 2)
	f.Hold(invalidates, false)
	settle(g)
	require.Len(t, g.channels.CardChannels(), 1)
}
