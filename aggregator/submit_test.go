package aggregator

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/scale"
)

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
	require.Eventually(t, ev.saw(func() bool { return ev.lists >= 1 }), patience, tick)
	list(t, g1, 2)
	bindChannel(t, g1, 2)
	require.ElementsMatch(t, []uint32{uint32(g1.cardChannel(2).id), other}, f.runlist(), "a channel that is bound again stays listed")
	g2.Bind(1, 0)
	settle(g2)
	require.Equal(t, []uint32{uint32(g1.cardChannel(2).id)}, f.runlist())
}

// A doorbell after an invalidate of changed tables reaches the card after it, whether the
// guest sees the invalidate as pending or not.
func TestDoorbellWaitsForTheInvalidate(t *testing.T) {
	for _, policy := range shadowpt.Policies() {
		t.Run(fmt.Sprint(policy.Sync, policy.Scan), func(t *testing.T) {
			a, f := newAgg(t, Options{CardTimeout: patience})
			g := addGuestWith(t, a, GuestConfig{Shadow: policy})
			bindChannel(t, g, 3)
			put := binary.LittleEndian.AppendUint32(nil, 5)
			require.True(t, g.eachRun(userdAt+3*gf100.USERDSize+gf100.USERDGPPut, put, true))
			g.Doorbell(3)
			require.Len(t, f.rings(), 1, "nothing is under way: immediately")
			f.forget()
			f.hold(regMMUCtrl, true)
			require.True(t, g.eachRun(dirAt, binary.LittleEndian.AppendUint64(nil, 3<<2), true))
			g.Invalidate(dirAt>>12<<4, 1<<31|1)
			require.Equal(t, policy.Sync == shadowpt.SyncLazy, g.Invalidated())
			g.Doorbell(3)
			time.Sleep(10 * time.Millisecond)
			require.Empty(t, f.rings())
			f.hold(regMMUCtrl, false)
			require.Eventually(t, func() bool { return g.Invalidated() && len(f.rings()) == 1 }, patience, tick)
			require.Equal(t, regWrite{uint32(g.cardChannel(3).id), 5}, f.rings()[0])
		})
	}
}

// TestRoundSubmitsItsDoorbells: a doorbell during the round of an earlier one has a round of its
// own. The first round must not submit it, because it may have flushed aliases before the guest's
// stores.
func TestRoundSubmitsItsDoorbells(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: patience})
	g, _ := addGuest(t, a, "a") // with deferred invalidates
	bindChannel(t, g, 3)
	f.forget()
	f.hold(regMMUCtrl, true)
	require.True(t, g.eachRun(dirAt, binary.LittleEndian.AppendUint64(nil, 3<<2), true))
	g.Invalidate(dirAt>>12<<4, 1<<31|1)
	writePut(g, 3, 5) // deferred invalidates are flushed first
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.current.doorbells.has(3)
	}, patience, tick)
	writePut(g, 3, 7)
	require.Empty(t, f.rings())
	f.hold(regMMUCtrl, false)
	id := uint32(g.cardChannel(3).id)
	require.Eventually(t, func() bool { return len(f.rings()) == 2 }, patience, tick)
	require.Equal(t, []regWrite{{id, 5}, {id, 7}}, f.rings())
}

// bindingCard calls during once, while a channel's USERD is being filled.
type bindingCard struct {
	*fakeCard
	userd  func(addr uint64) bool
	during func()
}

func (b *bindingCard) WriteVRAM(addr uint64, p []byte) bool {
	if f := b.during; f != nil && len(p) == gf100.USERDSize && b.userd(addr) {
		b.during = nil
		f()
	}
	return b.fakeCard.WriteVRAM(addr, p)
}

// TestDoorbellDuringBind: the guest writes GP_PUT after the round that binds its channel
// has read it. Only that doorbell can pass it to the card.
func TestDoorbellDuringBind(t *testing.T) {
	b := &bindingCard{fakeCard: newFake(fakeVRAM)}
	a := newAggOn(t, b, Options{})
	b.userd = func(addr uint64) bool { return addr-a.pollArea < gf100.PollSize }
	g, _ := addGuest(t, a, "a")
	written := false
	b.during = func() {
		written = true
		writePut(g, 1, 7)
	}
	bindChannel(t, g, 1)
	require.True(t, written)
	forwarded := func() bool {
		return slices.Contains(b.rings(), regWrite{uint32(g.cardChannel(1).id), 7})
	}
	require.Eventually(t, forwarded, patience, tick)
}

// A driver's most frequent operations do not allocate.
func TestNoAllocations(t *testing.T) {
	if scale.Race {
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
		"Doorbell":     func() { g.Doorbell(1) },
		"EngineStatus": func() { g.EngineStatus(0) },
		"Invalidated":  func() { g.Invalidated() },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

// hookedReads is a card that calls do after it has read the dword at an address once.
type hookedReads struct {
	*fakeCard
	at atomic.Uint64
	do func()
}

func (h *hookedReads) ReadVRAM(addr uint64, p []byte) bool {
	ok := h.fakeCard.ReadVRAM(addr, p)
	if len(p) == 4 && h.at.CompareAndSwap(addr, 0) {
		h.do()
	}
	return ok
}

// TestNewerPutIsKept: a doorbell rings while the worker reads GP_PUT again. The older value does
// not replace the newer one.
func TestNewerPutIsKept(t *testing.T) {
	f := &hookedReads{fakeCard: newFake(fakeVRAM)}
	a := newAggOn(t, f, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	at, ok := g.extents.Translate(g.cardChannel(1).userd, gf100.USERDSize)
	require.True(t, ok)
	put := func(v byte) { require.True(t, f.WriteVRAM(at+gf100.USERDGPPut, []byte{v, 0, 0, 0})) }
	put(3)
	f.do = func() {
		put(5)
		g.Doorbell(1)
	}
	f.at.Store(at + gf100.USERDGPPut)
	g.mu.Lock()
	g.ring(1, false) // its aliases are not flushed: the worker reads GP_PUT
	g.mu.Unlock()
	settleRound(g)
	settle(g)
	require.Zero(t, f.at.Load())
	rings := f.rings()
	require.Equal(t, uint32(5), rings[len(rings)-1].v)
}
