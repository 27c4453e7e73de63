package aggregator

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// TestRunlist: a guest's runlist says which of its own channels run, also of those that it binds
// later, and no other's. None does while its PFIFO is off.
func TestRunlist(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	for _, id := range []uint8{1, 2, 3} {
		bindChannel(t, g, id)
	}
	bindChannel(t, other, 1)
	gpu(g).Channel(3, devgf100.Enable, 0)
	run := func(want ...uint8) {
		t.Helper()
		var got []uint8
		for _, id := range []uint8{1, 2, 3} {
			if f.Enabled(number(g, id)) {
				got = append(got, id)
			}
		}
		require.Equal(t, want, got)
		require.True(t, f.Enabled(number(other, 1)))
		require.Len(t, f.Runlist(), 4)
	}
	list(t, g, 1, 2, 2, 3, 77, 128, 129, 256, 1<<20, 0xffffffff) // twice, stopped, not bound, no numbers
	run(1, 2)
	saveRef(t, f, g, 1, 41)
	saveRef(t, f, g, 3, 43)
	list(t, g) // an empty list is a list
	run()
	require.Equal(t, []uint32{41, 43}, []uint32{savedRef(t, g, 1), savedRef(t, g, 3)}, "all have left, also one that was stopped")
	list(t, g, append(make([]uint32, gf100.Channels), 1)...)
	run() // of an entry beyond the number of channels
	require.Eventually(t, ev.saw(func() bool { return ev.lists >= 1 }), patience, tick)
	list(t, g, 2)
	bindAt(g, 1, instAt+gf100.InstanceSize)
	bindAt(g, 2, instAt+2*gf100.InstanceSize)
	settle(g)
	run(2)
	gpu(g).Channel(1, devgf100.Enable, 0)
	gpu(g).Channel(1, devgf100.Enable, 1)
	run(2)
	list(t, g, 1, 2)
	run(1, 2)
	gpu(g).Set(devgf100.MayRun, 0)
	bindAt(g, 1, instAt+gf100.InstanceSize)
	settle(g)
	run()
	gpu(g).Channel(1, devgf100.Enable, 1)
	gpu(g).Channel(2, devgf100.Enable, 1)
	run()
	gpu(g).Set(devgf100.MayRun, 1)
	settle(g)
	run(1, 2)
}

// A doorbell after an invalidate of changed tables reaches the card after it, whether the
// guest sees the invalidate as pending or not.
func TestDoorbellWaitsForTheInvalidate(t *testing.T) {
	for _, policy := range shadowpt.Policies() {
		t.Run(fmt.Sprint(policy.Sync, policy.Scan), func(t *testing.T) {
			a, f := newAgg(t, Options{})
			g := addGuestWith(t, a, GuestConfig{Shadow: policy})
			bindChannel(t, g, 3)
			put := binary.LittleEndian.AppendUint32(nil, 5)
			require.True(t, g.mem.Write(shadowpt.VRAM, userdAt+3*gf100.USERDSize+gf100.USERDGPPut, put))
			gpu(g).Channel(3, devgf100.Doorbell, 0)
			require.Len(t, f.Doorbells(), 1, "nothing is under way: immediately")
			f.Forget()
			f.Hold(invalidates, true)
			mapPage(t, g)
			invalidate(g)
			require.Equal(t, policy.Sync == shadowpt.SyncLazy, !gpu(g).Pending().Invalidate)
			gpu(g).Channel(3, devgf100.Doorbell, 0)
			time.Sleep(10 * time.Millisecond)
			require.Empty(t, f.Doorbells())
			f.Hold(invalidates, false)
			require.Eventually(t, func() bool { return !gpu(g).Pending().Invalidate && len(f.Doorbells()) == 1 }, patience, tick)
			require.Equal(t, regWrite{Reg: uint32(number(g, 3)), V: 5}, f.Doorbells()[0])
		})
	}
}

// TestRoundSubmitsItsDoorbells: a doorbell during the round of an earlier one has a round of its
// own. The first round must not submit it, because it may have flushed aliases before the guest's
// stores.
func TestRoundSubmitsItsDoorbells(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a") // whose invalidates are put off
	bindChannel(t, g, 3)
	f.Forget()
	f.Hold(invalidates, true)
	mapPage(t, g)
	invalidate(g)
	ring := func(put uint32) { store(g, 3, put); gpu(g).Channel(3, devgf100.Doorbell, 0) }
	ring(5) // deferred invalidates are flushed first
	eventually(t, g, func() bool { return g.work.current.Doorbells.Has(3) })
	ring(7)
	require.Empty(t, f.Doorbells())
	f.Hold(invalidates, false)
	id := uint32(number(g, 3))
	require.Eventually(t, func() bool { return len(f.Doorbells()) == 2 }, patience, tick)
	require.Equal(t, []regWrite{{Reg: id, V: 5}, {Reg: id, V: 7}}, f.Doorbells())
}

// A driver's most frequent operations do not allocate.
func TestNoAllocations(t *testing.T) {
	if scale.Race {
		t.Skip("pools forget on purpose under the race detector")
	}
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	f.Silent = true
	var p [8]byte
	for name, f := range map[string]func(){
		"WriteBAR":     func() { gpu(g).Write(devgf100.WindowBAR3, 0x1000, p[:1]) },
		"ReadBAR":      func() { gpu(g).Read(devgf100.WindowBAR1, 0x1000, p[:]) },
		"WritePRAMIN":  func() { gpu(g).Write(devgf100.PRAMIN, 0x10010, p[:4]) },
		"ReadPRAMIN":   func() { gpu(g).Read(devgf100.PRAMIN, 0x10010, p[:4]) },
		"Refresh":      func() { gpu(g).Channel(1, devgf100.Refresh, 0) },
		"Doorbell":     func() { gpu(g).Channel(1, devgf100.Doorbell, 0) },
		"EngineStatus": func() { gpu(g).EngineStatus(0) },
		"Invalidated":  func() { gpu(g).Pending() },
	} {
		require.Zero(t, testing.AllocsPerRun(100, f), name)
	}
}

// hookedReads calls do after it has read the dword at an address once.
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

// TestNewerPutIsKept: a doorbell comes while the worker reads GP_PUT again. The older value does
// not replace the newer one.
func TestNewerPutIsKept(t *testing.T) {
	f := &hookedReads{fakeCard: fakecard.New(fakeVRAM)}
	a := newAggOn(t, f, patience, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	store(g, 1, 3)
	f.do = func() {
		store(g, 1, 5)
		gpu(g).Channel(1, devgf100.Doorbell, 0)
	}
	at, _ := g.mem.Translate(shadowpt.VRAM, userdAt+gf100.USERDSize, gf100.USERDSize, true)
	f.at.Store(at + gf100.USERDGPPut)
	g.mu.Lock()
	g.ring(1, false) // its aliases are not flushed: the worker reads GP_PUT
	g.mu.Unlock()
	settleRound(g)
	settle(g)
	require.Zero(t, f.at.Load())
	doorbells := f.Doorbells()
	require.Equal(t, uint32(5), doorbells[len(doorbells)-1].V)
}

// TestChannelsThatAreListedAgain: a channel that left the list and is on it again may have
// run: its state is saved when it ends. One that was disabled and preempted has not run, and
// the guest may have reused its memory.
func TestChannelsThatAreListedAgain(t *testing.T) {
	for on, want := range map[bool]uint32{true: 7, false: 9} {
		a, f := newAgg(t, Options{})
		g, _ := addGuest(t, a, "a")
		bindChannel(t, g, 1)
		if on {
			list(t, g)
		} else {
			gpu(g).Channel(1, devgf100.Enable, 0)
			gpu(g).Channel(1, devgf100.Preempt, 0)
			settleRound(g)
		}
		list(t, g, 1)
		saveRef(t, f, g, 1, 7)
		at := instAt + gf100.InstanceSize + uint64(gf100.InstRef.Offset)
		require.True(t, g.mem.Write(shadowpt.VRAM, at, binary.LittleEndian.AppendUint32(nil, 9)))
		gpu(g).Channel(1, devgf100.Bind, 0)
		settle(g)
		require.Equal(t, want, savedRef(t, g, 1))
	}
}

// TestStopDuringPreempt: a guest that stops its channels while one is preempted has broken no rule, although the
// channel runs until the worker follows.
func TestStopDuringPreempt(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	f.Hold(preempts, true)
	gpu(g).Channel(1, devgf100.Preempt, 0)
	eventually(t, g, func() bool { return !g.work.current.Preempt.Empty() })
	gpu(g).Set(devgf100.MayRun, 0)
	f.SetChannel(number(g, 1), gf100.ChannelBusy|1)
	f.Hold(preempts, false)
	settle(g)
	require.Empty(t, g.QuarantineReason())
	require.False(t, f.Enabled(number(g, 1)))
	f.SetChannel(number(g, 1), 0)
}
