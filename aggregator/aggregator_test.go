package aggregator

import (
	"encoding/binary"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

func TestBringUp(t *testing.T) {
	_, f := newAgg(t, Options{})
	require.Equal(t, uint32(1), f.get(regPMCIntrEn))
	require.Equal(t, uint32(intrOurs), f.get(regPMCIntrMask0))
	require.Equal(t, uint32(1), f.get(regFIFOEnable))
	require.Equal(t, uint32(1<<28), f.get(regUSERDBase))
	require.Equal(t, ^uint32(0), f.get(regGraphIntrEn))
	// BAR1 shows the poll area, and behind it nothing.
	block := f.vram[uint64(f.get(regBAR1Block)&gf100.BlockAddr)<<12:][:gf100.InstanceSize]
	s := instanceSpace(block)
	require.Equal(t, uint64(gf100.Channels*gf100.USERDSize-1), s.Limit)
}

// Every field of an instance block that the chip's description knows has a rule.
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
		v := instanceValues{userd: 0x12345000, dir: 0x6789a000, token: 0xfedcba9876543211, owner: 21, keep: 128}
		a, b := buildInstance(guest, v), buildInstance(flipped, v)
		for i := range a {
			require.Equal(t, may[i], a[i]^b[i], "byte %#x", i)
			require.Equal(t, guest[i]&may[i], a[i]&may[i], "byte %#x", i)
		}
		require.Equal(t, uint32(0x12345), gf100.InstUSERDLo.Get(a))
		require.Equal(t, uint32(0x6789a), gf100.InstPDBLo.Get(a))
		require.Equal(t, uint32(21), gf100.InstOwner.Get(a))
		require.Equal(t, uint32(128), gf100.InstKeep.Get(a))
		require.Zero(t, gf100.InstUSERDTarget.Get(a)|gf100.InstPDBTarget.Get(a)|gf100.InstGRContextLo.Get(a))
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
	g.Bind(1, 0xc0000000|(4<<20>>12)) // right behind its memory
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
	require.Eventually(t, ev.heard(func() bool { return ev.unlisted == 1 }), patience, tick)
	g.Runlist(4<<20>>12, 0) // of which nothing has to be read
	settle(g)
	require.Equal(t, uint64(1), g.stats.BadRunlist.Load())
	for id := range uint8(4) {
		require.Nil(t, g.cardChannel(id))
	}
}

func TestRunlistsAreMerged(t *testing.T) {
	a, f := newAgg(t, Options{})
	g1, ev := addGuest(t, a, "a")
	g2, _ := addGuest(t, a, "b")
	bindChannel(t, g1, 1)
	bindChannel(t, g1, 2)
	bindChannel(t, g2, 1)
	list(t, g1, 1, 2, 2, 77, 0xffffffff) // twice, not bound, no number
	list(t, g2, 1)
	one, two, other := uint32(g1.cardChannel(1).id), uint32(g1.cardChannel(2).id), uint32(g2.cardChannel(1).id)
	require.ElementsMatch(t, []uint32{one, two, other}, f.runlist())
	list(t, g1) // an empty list is a list
	require.Equal(t, []uint32{other}, f.runlist())
	require.Eventually(t, ev.heard(func() bool { return ev.lists >= 1 }), patience, tick)
	list(t, g1, 2)
	bindChannel(t, g1, 2)
	require.ElementsMatch(t, []uint32{uint32(g1.cardChannel(2).id), other}, f.runlist(), "a channel bound anew stays listed")
	g2.Bind(1, 0)
	settle(g2)
	require.Equal(t, []uint32{uint32(g1.cardChannel(2).id)}, f.runlist())
}

// A doorbell that comes after an invalidate of tables that changed reaches the
// card after it, whether the guest sees the invalidate wait or not.
func TestBellWaitsForTheInvalidate(t *testing.T) {
	for _, policy := range shadowpt.Policies() {
		t.Run(fmt.Sprint(policy.Sync, policy.Scan), func(t *testing.T) {
			a, f := newAgg(t, Options{CardTimeout: patience})
			g := addGuestWith(t, a, GuestConfig{Shadow: policy})
			bindChannel(t, g, 3)
			put := binary.LittleEndian.AppendUint32(nil, 5)
			require.True(t, g.eachRun(userdAt+3*gf100.USERDSize+gf100.USERDGPPut, put, true))
			g.Bell(3)
			require.Len(t, f.rung(), 1, "nothing is under way: at once")
			f.forget()
			f.hold(regMMUCtrl, true)
			require.True(t, g.eachRun(dirAt, binary.LittleEndian.AppendUint64(nil, 3<<2), true))
			g.Invalidate(dirAt>>12<<4, 1<<31|1)
			if policy.Sync != shadowpt.SyncAdaptive { // which may be applying the write
				require.Equal(t, policy.Sync.Lazy(), g.Invalidated())
			}
			g.Bell(3)
			time.Sleep(10 * time.Millisecond)
			require.Empty(t, f.rung())
			f.hold(regMMUCtrl, false)
			require.Eventually(t, func() bool { return g.Invalidated() && len(f.rung()) == 1 }, patience, tick)
			require.Equal(t, regWrite{uint32(g.cardChannel(3).id), 5}, f.rung()[0])
		})
	}
}

// USERD: what the card writes is shown, the doorbell's value is taken along at a
// bind, and memory that the guest has put to another use is let alone.
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

func TestErrorsReachTheirOwner(t *testing.T) {
	a, f := newAgg(t, Options{})
	g1, ev1 := addGuest(t, a, "a")
	g2, ev2 := addGuest(t, a, "b")
	bindChannel(t, g1, 7)
	bindChannel(t, g2, 7)
	ch := g2.cardChannel(7)
	f.raise(map[uint32]uint32{regFaultID: 1 << 0x15, regFault + 0x15*strideFault: uint32(ch.inst >> 12), regFaultLo + 0x15*strideFault: 0x1000, regFaultInfo + 0x15*strideFault: 0x42})
	require.Eventually(t, ev2.heard(func() bool { return len(ev2.faults) == 1 }), patience, tick)
	require.Equal(t, gf100.MMUFault{Unit: 0x15, Inst: instAt + 7*gf100.InstanceSize, VA: 0x1000, Info: 0x42}, ev2.faults[7])
	require.Zero(t, f.get(regFaultID))
	require.Zero(t, f.get(regChannel+uint32(ch.id)*8)&gf100.ChannelEnabled)

	one := g1.cardChannel(7)
	f.raise(map[uint32]uint32{regPBDMAIntr: gf100.PBDMAIntrMethod, regPBDMAMethod: 0x2_1234, regPBDMAData: 5, regPBDMAChannel: uint32(one.id)})
	require.Eventually(t, ev1.heard(func() bool { return len(ev1.pbdma) == 1 }), patience, tick)
	require.Equal(t, gf100.PBDMAError{Channel: 7, Intr: gf100.PBDMAIntrMethod, Method: 0x2_1234, Data: 5}, ev1.pbdma[0])
	require.Equal(t, uint32(methodPassed), f.get(regPBDMAMethod))
	require.Zero(t, f.get(regChannel+uint32(one.id)*8)&gf100.ChannelEnabled)
	g1.Enable(7, true)
	require.Zero(t, f.get(regChannel+uint32(one.id)*8)&gf100.ChannelEnabled, "held until its error is dealt with")
	g1.Resume(7)
	require.NotZero(t, f.get(regChannel+uint32(one.id)*8)&gf100.ChannelEnabled)

	f.raise(map[uint32]uint32{
		regGraphIntr: gf100.GraphIntrIllegalMthd, regGraphContext: 1<<31 | uint32(one.inst>>12),
		regGraphAddr: 3<<16 | 0x400, regGraphClass + 12: 0x9097, regGraphData: 8,
	})
	require.Eventually(t, ev1.heard(func() bool { return len(ev1.graph) == 1 }), patience, tick)
	require.Equal(t, gf100.GraphTrap{
		Intr: gf100.GraphIntrIllegalMthd, Inst: instAt + 7*gf100.InstanceSize, Subchannel: 3, Class: 0x9097, Method: 0x400, Data: 8,
	}, ev1.graph[7])
	require.Equal(t, uint32(graphGoOn), f.get(regGraphFIFO))
	require.Empty(t, ev1.faults)
	require.Empty(t, ev2.pbdma)
	require.Empty(t, ev2.graph)
}

// A guest that does not listen keeps nobody from hearing.
func TestSlowListener(t *testing.T) {
	a, f := newAgg(t, Options{})
	g1, ev1 := addGuest(t, a, "a")
	g2, ev2 := addGuest(t, a, "b")
	bindChannel(t, g1, 1)
	bindChannel(t, g2, 1)
	deaf := make(chan struct{})
	ev1.slow.Store(&deaf)
	defer close(deaf)
	for _, g := range []*Guest{g1, g1, g2} {
		f.raise(map[uint32]uint32{regFaultID: 1, regFault: uint32(g.cardChannel(1).inst >> 12)})
		require.Eventually(t, func() bool { return f.get(regFaultID) == 0 }, patience, tick)
	}
	require.Eventually(t, ev2.heard(func() bool { return len(ev2.faults) == 1 }), patience, tick)
}

// A card that does not give a channel back in time: its guest is in safe mode, its
// neighbour goes on, nothing that the card may still use is used again, and when
// the card has come to itself a reset makes all well.
func TestCardKeepsAChannel(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: 20 * time.Millisecond})
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	bindChannel(t, other, 1)
	list(t, g, 1)
	ch := g.cardChannel(1)
	f.set(regChannel+uint32(ch.id)*8, gf100.ChannelBusy)
	stuck := func(on bool) {
		f.hold(regEngRunlist, on)
		f.hold(regPreempt, on)
	}
	stuck(true)
	g.mu.Lock()
	g.channels[1].ch.stopped = true // its enable bit is the fake's busy bit, too
	g.mu.Unlock()
	keepBusy := func() { f.set(regChannel+uint32(ch.id)*8, gf100.ChannelBusy) }
	g.mu.Lock()
	g.setBound(1, 0, false)
	keepBusy()
	g.mu.Unlock()
	deadline := time.Now().Add(patience)
	for g.SafeMode() == "" && time.Now().Before(deadline) {
		keepBusy()
		time.Sleep(tick)
	}
	require.NotEmpty(t, g.SafeMode())
	keepBusy()
	require.NotZero(t, f.get(regChannelInst+uint32(ch.id)*8), "not unbound: the card may be in it")
	require.Same(t, ch, a.owner(ch.id))

	bindChannel(t, g, 2)
	require.Nil(t, g.cardChannel(2), "in safe mode nothing reaches the card")
	bindChannel(t, other, 2)
	require.NotNil(t, other.cardChannel(2))
	require.Empty(t, other.SafeMode())

	keepBusy()
	require.NoError(t, g.Reset())
	require.NotEmpty(t, g.SafeMode(), "the card still has it")
	f.set(regChannel+uint32(ch.id)*8, 0)
	stuck(false)
	require.NoError(t, g.Reset())
	require.Empty(t, g.SafeMode())
	require.Nil(t, a.owner(ch.id))
	bindChannel(t, g, 2)
	require.NotNil(t, g.cardChannel(2))
}

// A card that never answers holds nobody for ever.
func TestCardNeverAnswers(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: 10 * time.Millisecond})
	g, _ := addGuest(t, a, "a")
	for id := range uint8(8) {
		bindChannel(t, g, id)
	}
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, true)
	}
	waits := a.ctl.timeouts.Load()
	g.Unmapped(0, 1<<20)
	require.NotEmpty(t, g.SafeMode())
	require.NoError(t, g.Reset())
	require.LessOrEqual(t, a.ctl.timeouts.Load()-waits, uint64(2), "of which each is bounded")
	require.NotZero(t, g.stats.CardTimeout.Load())
	err := g.Remove()
	require.ErrorContains(t, err, "has not let go")
	free := a.Free()
	_, err = a.AddGuest(GuestConfig{Name: "next", VRAM: 4 << 20, Tables: 1 << 20}, &told{})
	require.NoError(t, err)
	require.Less(t, a.Free(), free, "others go on, in other memory")
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, false)
	}
}

// A guest that stops the engines again and again is put into safe mode, and comes
// out of it by a reset.
func TestTooManyErrors(t *testing.T) {
	a, f := newAgg(t, Options{ErrorBurst: 5, ErrorRate: 1e-9})
	g, _ := addGuest(t, a, "a")
	for range 6 {
		bindChannel(t, g, 1)
		f.raise(map[uint32]uint32{regFaultID: 1, regFault: uint32(g.cardChannel(1).inst >> 12)})
		require.Eventually(t, func() bool { return f.get(regFaultID) == 0 }, patience, tick)
	}
	require.Eventually(t, func() bool { return g.SafeMode() != "" && g.cardChannel(1) == nil }, patience, tick)
	g.Runlist(listAt>>12, 1)
	settle(g)
	require.False(t, g.RunlistPending())
	require.NoError(t, g.Reset())
	require.Empty(t, g.SafeMode())
	bindChannel(t, g, 1)
	require.NotNil(t, g.cardChannel(1))
}

// Each guest can count on some channels, whatever the others take: as many as it
// was promised, and nobody is promised what others were.
func TestChannelsAreGuaranteed(t *testing.T) {
	for _, promised := range []int{0, 1, 60} {
		a, _ := newAgg(t, Options{})
		greedy, _ := addGuest(t, a, "greedy")
		share := GuestConfig{Name: "late", VRAM: 4 << 20, Tables: 1 << 20, Guaranteed: promised}
		late, err := a.AddGuest(share, &told{})
		require.NoError(t, err)
		want := promised
		if promised == 0 {
			want = gf100.Channels / MaxGuests
		}
		for id := range uint8(gf100.Channels) {
			bindChannel(t, greedy, id)
		}
		require.Equal(t, gf100.Channels-want, len(greedy.bound()))
		for id := range uint8(want + 1) {
			bindChannel(t, late, id)
		}
		require.Equal(t, want, len(late.bound()))
		require.NotZero(t, greedy.stats.OverQuota.Load())

		share.Name, share.Guaranteed = "more", gf100.Channels-want-gf100.Channels/MaxGuests+1
		_, err = a.AddGuest(share, &told{})
		require.ErrorContains(t, err, fmt.Sprintf("guest more: %d guaranteed channels: of the card's 128 the others have all but %d", share.Guaranteed, share.Guaranteed-1))
		share.Channels = 3
		_, err = a.AddGuest(share, &told{})
		require.ErrorContains(t, err, "1 to 3 are possible")
	}
}

func TestQuota(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g, err := a.AddGuest(GuestConfig{Name: "few", VRAM: 4 << 20, Channels: 2, Tables: 1 << 20}, &told{})
	require.NoError(t, err)
	for id := range uint8(4) {
		bindChannel(t, g, id)
	}
	require.Equal(t, 2, len(g.bound()))
	require.Equal(t, uint64(2), g.stats.OverQuota.Load())
}

// Whoever asks while an operation is under way has part in the next one.
func TestTurnServesEverybodyAtOnce(t *testing.T) {
	var tn turn
	tn.init()
	begun, goOn := make(chan struct{}, 1), make(chan struct{})
	runs := 0
	run := func(*ticket) bool {
		runs++
		begun <- struct{}{}
		<-goOn
		return true
	}
	var wg sync.WaitGroup
	var asked atomic.Int64
	ask := func() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			assert.True(t, tn.do(func(*ticket) { asked.Add(1) }, run))
		}()
	}
	ask()
	<-begun
	for range 50 {
		ask()
	}
	require.Eventually(t, func() bool { return asked.Load() == 51 }, patience, tick)
	close(goOn)
	<-begun
	wg.Wait()
	require.Equal(t, 2, runs)
}

// Memory that changes hands is clean.
func TestScrubBeforeTheNextOwner(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	e := g.Extents()[0]
	for i := range f.vram[e.Card : e.Card+e.Size] {
		f.vram[e.Card+uint64(i)] = 0xaa
	}
	require.NoError(t, g.Remove())
	next, _ := addGuest(t, a, "b")
	require.Equal(t, e, next.Extents()[0])
	require.NotContains(t, string(f.vram[e.Card:e.Card+e.Size]), "\xaa")
	f.vram[e.Card+5] = 1
	require.NoError(t, next.Reset())
	require.Zero(t, f.vram[e.Card+5])
}

// The windows of a guest whose memory is in pieces are one memory, and its alone.
func TestWindowsOverPieces(t *testing.T) {
	a, f := newAgg(t, Options{})
	var filler []*Guest
	for i := range 9 {
		g, err := a.AddGuest(GuestConfig{Name: fmt.Sprint(i), VRAM: 9 << 20, Tables: 1 << 20, Channels: 1}, &told{})
		if err != nil {
			break
		}
		filler = append(filler, g)
	}
	for i := 0; i < len(filler); i += 2 {
		require.NoError(t, filler[i].Remove())
	}
	g, err := a.AddGuest(GuestConfig{Name: "pieces", VRAM: 24 << 20, Tables: 1 << 20}, &told{})
	require.NoError(t, err)
	require.Greater(t, len(g.Extents()), 1)
	model := make([]byte, 24<<20)
	before := append([]byte(nil), f.vram...)
	mine := make([]bool, len(f.vram)>>12)
	for _, e := range g.Extents() {
		for p := e.Card >> 12; p < (e.Card+e.Size)>>12; p++ {
			mine[p] = true
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		border := g.Extents()[1].Guest
		addr := rapid.OneOf(
			rapid.Uint64Range(border-16, border+16), rapid.Uint64Range(24<<20-16, 24<<20+16), rapid.Uint64Range(0, 1<<30),
		).Draw(t, "address")
		p := rapid.SliceOfN(rapid.Byte(), 1, 64).Draw(t, "bytes")
		win, off := uint32(addr>>16), uint32(addr&0xffff)
		fits := addr < uint64(len(model)) && addr+uint64(len(p)) <= uint64(len(model))
		g.WritePRAMIN(win, off, p)
		if fits {
			copy(model[addr:], p)
		}
		got := make([]byte, len(p))
		g.ReadPRAMIN(win, off, got)
		for i := range got {
			want := byte(0xff)
			if fits {
				want = model[addr+uint64(i)]
			}
			require.Equal(t, want, got[i])
		}
		_, ok := g.WriteBAR(1, addr, p[:1])
		require.Equal(t, addr < uint64(len(model)), ok)
		if ok {
			model[addr] = p[0]
		}
	})
	for p := range mine {
		if !mine[p] {
			require.Equal(t, before[p<<12:(p+1)<<12], f.vram[p<<12:(p+1)<<12])
		}
	}
}

// What a driver does most costs no allocation.
func TestNoAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("pools forget on purpose under the race detector")
	}
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	g.agg.ctl.card = f.quiet()
	var p [8]byte
	for name, f := range map[string]func(){
		"WriteBAR":     func() { g.WriteBAR(3, 0x1000, p[:1]) },
		"ReadBAR":      func() { g.ReadBAR(1, 0x1000, p[:]) },
		"WritePRAMIN":  func() { g.WritePRAMIN(1, 0x10, p[:4]) },
		"ReadPRAMIN":   func() { g.ReadPRAMIN(1, 0x10, p[:4]) },
		"Refresh":      func() { g.Refresh(1) },
		"Bell":         func() { g.Bell(1) },
		"EngineStatus": func() { g.EngineStatus(0) },
		"Invalidated":  func() { g.Invalidated() },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

// cutFile is guest memory whose file was cut short.
type cutFile struct{ mem []byte }

func (cutFile) Acquire() {}
func (cutFile) Release() {}
func (c cutFile) Slice(addr uint64, n int, _ bool) []byte {
	if addr+uint64(n) > uint64(len(c.mem)) {
		return nil
	}
	return c.mem[addr : addr+uint64(n)]
}

func TestMemoryCutShort(t *testing.T) {
	fd, err := unix.MemfdCreate("cut", 0)
	require.NoError(t, err)
	defer os.NewFile(uintptr(fd), "cut").Close()
	require.NoError(t, unix.Ftruncate(fd, 1<<20))
	mem, err := unix.Mmap(fd, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(mem)) }()
	require.NoError(t, unix.Ftruncate(fd, 0))

	a, _ := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	g.AttachMemory(cutFile{mem})
	p := make([]byte, 4)
	g.ReadPRAMIN(2<<24, 0, p)
	require.Equal(t, []byte{0xff, 0xff, 0xff, 0xff}, p)
	g.WritePRAMIN(3<<24, 0, p)
	require.Equal(t, uint64(2), g.stats.BadWindow.Load())
	require.False(t, g.ReadTable(shadowpt.SystemCoherent, 0, make([]byte, 8192)))
	require.Panics(t, func() { // a bug of ours is not swallowed
		g.AttachMemory(buggy{})
		g.ReadPRAMIN(2<<24, 0, p)
	})
	g.AttachMemory(nil)
}

type buggy struct{ cutFile }

func (buggy) Slice(uint64, int, bool) []byte { panic("a bug") }

// The allocator is held against a bitmap.
func TestPartition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const pages = 256
		p := newPartition(pages * pageSize)
		var used [pages]bool
		var held [][]run
		mark := func(list []run, to bool) {
			for _, r := range list {
				for i := r.addr / pageSize; i < (r.addr+r.size)/pageSize; i++ {
					require.NotEqual(t, to, used[i], "page %d", i)
					used[i] = to
				}
			}
		}
		for range rapid.IntRange(1, 60).Draw(t, "operations") {
			if len(held) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
				mark(held[i], false)
				p.release(held[i]...)
				held = append(held[:i], held[i+1:]...)
				continue
			}
			align := uint64(pageSize) << rapid.IntRange(0, 3).Draw(t, "align")
			size := align * uint64(rapid.IntRange(1, 24).Draw(t, "size"))
			list, err := p.alloc(size, align)
			if err != nil {
				continue
			}
			sum := uint64(0)
			for _, r := range list {
				require.Zero(t, r.addr%align)
				sum += r.size
			}
			require.Equal(t, size, sum)
			mark(list, true)
			held = append(held, list)
		}
		left := uint64(0)
		for _, u := range used {
			if !u {
				left += pageSize
			}
		}
		free := uint64(0)
		for i, f := range p.free {
			free += f.size
			if i > 0 {
				require.Greater(t, f.addr, p.free[i-1].addr+p.free[i-1].size, "runs touch")
			}
		}
		require.Equal(t, left, free)
	})
}
