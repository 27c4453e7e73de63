package aggregator

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Every field of an instance block in the chip's description has a rule.
func TestInstanceFieldsAreAllListed(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../mmio/gf100/structs.go", nil, 0)
	require.NoError(t, err)
	listed := map[string]int{}
	for _, f := range instanceFields {
		listed[f.Name]++
	}
	known := 0
	ast.Inspect(file, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(v.Names[0].Name, "Inst") || len(v.Values) != 1 {
			return true
		}
		if c, ok := v.Values[0].(*ast.CompositeLit); ok {
			name := strings.Trim(c.Elts[0].(*ast.BasicLit).Value, `"`)
			require.Equal(t, 1, listed[name], name)
			known++
		}
		return true
	})
	require.Equal(t, len(instanceFields), known)
}

// No bit of a guest's instance block arrives on the card but those of copied
// fields.
func TestInstanceBlockBits(t *testing.T) {
	may := make([]byte, gf100.InstanceSize)
	for _, f := range instanceFields {
		if f.rule == copied {
			f.Put(may, ^uint32(0))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		guest := rapid.SliceOfN(rapid.Byte(), gf100.InstanceSize, gf100.InstanceSize).Draw(t, "block")
		flipped := make([]byte, len(guest))
		for i := range guest {
			flipped[i] = ^guest[i]
		}
		v := instanceValues{userd: 0x12345000, dir: 0x6789a000, token: 0xfedcba9876543211, owner: 21, states: 128}
		a, b := buildInstance(guest, v), buildInstance(flipped, v)
		for i := range a {
			require.Equal(t, may[i], a[i]^b[i], "byte %#x", i)
			require.Equal(t, guest[i]&may[i], a[i]&may[i], "byte %#x", i)
		}
		require.Equal(t, uint32(0x12345), gf100.InstUSERDLo.Get(a))
		require.Equal(t, uint32(0x6789a), gf100.InstPDBLo.Get(a))
		require.Equal(t, uint32(21), gf100.InstOwner.Get(a))
		require.Equal(t, uint32(128), gf100.InstKeep.Get(a))
		for _, w := range []gf100.Word{
			gf100.InstGPPut, gf100.InstUSERDTarget, gf100.InstPBGetLo, gf100.InstPBGetHi, gf100.InstPDBTarget, gf100.InstGRContextLo, gf100.InstGRContextHi,
		} {
			require.Zero(t, w.Get(a)|w.Get(b), w.Name)
		}
	})
}

func TestBindUnbindRebind(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 9)
	ch := g.cardChannel(9)
	require.NotNil(t, ch)
	require.Equal(t, instanceBound|uint32(ch.inst>>12), f.get(regChannelInst+uint32(ch.id)*8))
	require.Equal(t, uint32(channelStart), f.get(regChannel+uint32(ch.id)*8))
	require.NotEqual(t, uint64(instAt+9*gf100.InstanceSize), ch.inst)

	bindChannel(t, g, 9)
	again := g.cardChannel(9)
	require.NotSame(t, ch, again)
	require.Equal(t, ch.id, again.id, "the card finds what it kept under the same number")
	g.Bind(9, 0)
	settle(g)
	require.Nil(t, g.cardChannel(9))
	require.Zero(t, f.get(regChannelInst+uint32(again.id)*8))
	require.Zero(t, f.get(regChannel+uint32(again.id)*8)&gf100.ChannelEnabled)
	require.Equal(t, uint64(2), g.stats.Binds.Load())
	require.Equal(t, uint64(2), g.stats.Unbinds.Load())
	require.Empty(t, g.spaces)
}

// TestGuestStructures: a guest fills the fields of its instance block and USERD that are not its
// to choose. The card gets the aggregator's values.
func TestGuestStructures(t *testing.T) {
	a, f := newAgg(t, Options{})
	addGuest(t, a, "first")
	g, err := a.AddGuest(GuestConfig{Name: "second", VRAM: 4 << 20, Tables: 1 << 20, Channels: 5}, &recorder{})
	require.NoError(t, err)
	const inst, userd = instAt + 3*gf100.InstanceSize, userdAt + 3*gf100.USERDSize
	bind := func(edit func(block []byte)) []byte {
		g.Bind(3, 0)
		settle(g)
		block := make([]byte, gf100.InstanceSize)
		require.True(t, g.read(shadowpt.VRAM, inst, block))
		edit(block)
		require.True(t, g.eachRun(inst, block, true))
		g.Bind(3, 0xc0000000|inst>>12)
		settle(g)
		require.True(t, f.ReadVRAM(g.cardChannel(3).inst, block))
		return block
	}
	require.True(t, g.eachRun(userd, bytes.Repeat([]byte{0x5a}, gf100.USERDSize), true))
	bindChannel(t, g, 3)
	ch := g.cardChannel(3)
	page := make([]byte, gf100.USERDSize)
	require.True(t, f.ReadVRAM(ch.cardUSERD(), page))
	for _, off := range append(userdShown[:], gf100.USERDGPPut) {
		clear(page[off:][:4])
	}
	require.Equal(t, make([]byte, gf100.USERDSize), page, "only the fields that have a use are copied")

	const named = 0x1122_3344_5566_7788
	token := func(block []byte, v uint64) {
		gf100.InstTokenLo.Put(block, uint32(v))
		gf100.InstTokenHi.Put(block, uint32(v>>32))
	}
	block := bind(func(block []byte) {
		token(block, named)
		gf100.InstOwner.Put(block, 0)
		gf100.InstKeep.Put(block, 127)
	})
	require.Zero(t, instanceToken(block), "a token that the guest made up")
	require.Equal(t, uint32(g.Owner()), gf100.InstOwner.Get(block))
	require.Equal(t, uint32(5), gf100.InstKeep.Get(block), "as many states as the guest may have channels")

	token(block, named) // the card's name of the channel's state
	require.True(t, f.WriteVRAM(g.cardChannel(3).inst, block))
	require.Equal(t, uint64(named), instanceToken(bind(func([]byte) {})), "the same channel again")
	require.Zero(t, instanceToken(bind(func(block []byte) { token(block, 0) })), "a new channel in the same block")
}

func TestBadStructures(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	unbound := func(n int) {
		require.Eventually(t, func() bool {
			ev.mu.Lock()
			defer ev.mu.Unlock()
			return ev.unbound == n
		}, patience, tick)
	}
	g.Bind(1, 0xc0000000|(4<<20>>12)) // right after its memory
	settle(g)
	require.Equal(t, uint64(1), g.stats.BadInstance.Load())
	unbound(1)
	block := make([]byte, gf100.InstanceSize)
	gf100.InstUSERDLo.Put(block, 4<<20>>12)
	require.True(t, g.eachRun(instAt, block, true))
	g.Bind(1, 0xc0000000|instAt>>12)
	settle(g)
	unbound(2)
	gf100.InstUSERDLo.Put(block, userdAt>>12)
	gf100.InstUSERDTarget.Put(block, 2)
	require.True(t, g.eachRun(instAt, block, true))
	g.Bind(2, 0xc0000000|instAt>>12)
	settle(g)
	require.Equal(t, uint64(2), g.stats.BadUSERD.Load())
	g.Runlist(4<<20>>12, 128)
	settle(g)
	require.Equal(t, uint64(1), g.stats.BadRunlist.Load())
	require.Eventually(t, ev.saw(func() bool { return ev.unlisted == 1 }), patience, tick)
	g.Runlist(4<<20>>12, 0) // of which nothing has to be read
	settle(g)
	require.Equal(t, uint64(1), g.stats.BadRunlist.Load())
	for id := range uint8(4) {
		require.Nil(t, g.cardChannel(id))
	}
}

// USERD: the guest sees the card's values, a bind takes the doorbell's value along, and
// memory that the guest has reused is not written.
func TestUSERD(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	at := uint64(userdAt + 4*gf100.USERDSize)
	require.True(t, g.eachRun(at+gf100.USERDGPPut, []byte{37, 0, 0, 0}, true))
	bindChannel(t, g, 4)
	ch := g.cardChannel(4)
	require.Equal(t, byte(37), f.vram[ch.cardUSERD()+gf100.USERDGPPut])
	f.vram[ch.cardUSERD()+gf100.USERDGPGet] = 36
	f.vram[ch.cardUSERD()+0x200] = 99
	g.Refresh(4)
	b := make([]byte, gf100.USERDSize)
	require.True(t, g.read(shadowpt.VRAM, at, b))
	require.Equal(t, byte(36), b[gf100.USERDGPGet])
	require.Zero(t, b[0x200])
	g.Enable(4, false)
	g.Preempt(4)
	settle(g)
	require.True(t, g.eachRun(at, make([]byte, 256), true)) // something else is there now
	g.Bind(4, 0)
	require.True(t, g.eachRun(at, make([]byte, 256), true))
	settle(g)
	require.True(t, g.read(shadowpt.VRAM, at, b))
	require.Zero(t, b[gf100.USERDGPGet])
}
