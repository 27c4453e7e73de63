package aggregator

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// TestFaultsWaitForNoGuest: while a guest's page tables cannot be read, the card's events go on, and so do
// others' reports. The access that faulted is noted before its guest hears of it.
func TestFaultsWaitForNoGuest(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	other, otherEv := addGuest(t, a, "b")
	const tables, unshared = 0x100000, 0x40000000
	mem := make([]byte, 1<<20)
	binary.LittleEndian.PutUint64(mem, shadowpt.PTE{Valid: true, Target: shadowpt.SystemCoherent, Addr: unshared}.Encode())
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Target: shadowpt.SystemCoherent, Addr: tables}}.Encode()
	require.True(t, g.mem.Write(shadowpt.VRAM, dirAt, binary.LittleEndian.AppendUint64(nil, pde)))
	var held atomic.Bool
	waits, goOn := make(chan struct{}), make(chan struct{})
	require.NoError(t, g.MapDMA(tables, card.Mapping{Mem: mem, Populate: func(uint64, uint64) bool {
		if held.CompareAndSwap(true, false) {
			close(waits)
			<-goOn
		}
		return true
	}}))
	bindChannel(t, g, 1)
	bindChannel(t, other, 1)
	held.Store(true)
	g.cardChannel(1).Fault(card.Fault{VA: 0x10})
	<-waits
	other.cardChannel(1).Fault(card.Fault{VA: 0x10})
	require.Eventually(t, otherEv.saw(func() bool { return len(otherEv.faults) == 1 }), patience, tick)
	close(goOn)
	require.Eventually(t, ev.saw(func() bool { return len(ev.faults) == 1 }), patience, tick)
	require.EqualValues(t, 1, g.stats.Channels.UnmappedDMA.N.Load())
	require.Equal(t, "read at 0x40000010", *g.stats.Channels.UnmappedDMA.Last.Load())
	require.Zero(t, other.stats.Channels.UnmappedDMA.N.Load())
}

// TestTooManyErrors: a guest that stops the engines again and again is quarantined, until a reset.
func TestTooManyErrors(t *testing.T) {
	a, _ := newAgg(t, Options{ErrorBurst: 5, ErrorRate: 1e-9})
	g, _ := addGuest(t, a, "a")
	for range 6 {
		bindChannel(t, g, 1)
		g.cardChannel(1).Fault(card.Fault{})
	}
	require.Eventually(t, func() bool { return g.QuarantineReason() != "" && g.cardChannel(1) == nil }, patience, tick)
	gpu(g).Runlist(listAt>>12, 1)
	settle(g)
	require.False(t, gpu(g).Pending().Runlist)
	require.NoError(t, gpu(g).Reset())
	require.Empty(t, g.QuarantineReason())
	bindChannel(t, g, 1)
	require.NotNil(t, g.cardChannel(1))
}

// TestErrorsOfEndedChannels: an error of a channel that its guest has unbound does not reach the next
// channel of the same number, whether it came before the unbind, during it or later.
func TestErrorsOfEndedChannels(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	bindChannel(t, g, 2)
	delivery := make(chan struct{})
	ev.slow.Store(&delivery)
	gpu(g).Runlist(4<<20>>12, 1) // its error keeps the receiver busy
	settle(g)                    // the receiver may be busy with the bind, and the list to come
	require.Eventually(t, func() bool { return ev.busy.Load() }, patience, tick)
	ch := g.cardChannel(2)
	ch.Fault(card.Fault{})
	bindChannel(t, g, 2)
	require.True(t, f.Enabled(number(g, 2)))

	ch = g.cardChannel(2)
	f.Hold(preempts, true)
	bindAt(g, 2, instAt+2*gf100.InstanceSize)
	eventually(t, g, func() bool { return g.channels.Channel(2) == nil })
	ch.Fault(card.Fault{})
	f.Hold(preempts, false)
	settle(g)
	ch.Fault(card.Fault{})
	require.True(t, f.Enabled(number(g, 2)))
	ev.slow.Store(nil)
	close(delivery)
	settle(g)
	require.Eventually(t, g.reports.Idle, patience, tick)
	require.True(t, ev.saw(func() bool { return len(ev.faults) == 0 })())
}

// TestReportsOfEndedChannels: what the card has reported of a channel, and nobody has read yet, does
// not reach the next owner of its number.
func TestReportsOfEndedChannels(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	other, otherEv := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	id := number(g, 1)
	f.Set(fakecard.Reg("NV_PPBDMA_INTR_0"), gf100.PBDMAIntrMethod)
	f.Set(fakecard.Reg("NV_PPBDMA_CHANNEL"), uint32(id))
	gpu(g).Channel(1, devgf100.Bind, 0)
	settle(g)
	bindChannel(t, other, 1)
	require.Equal(t, id, number(other, 1))
	a.gpu.Poll()
	settle(other)
	require.Eventually(t, other.reports.Idle, patience, tick)
	require.Zero(t, other.stats.Channels.PBDMAErrors.Load())
	require.Empty(t, otherEv.pbdma)
	require.Equal(t, uint64(1), g.stats.Channels.PBDMAErrors.Load())
}

// TestReset: when a reset returns, no event of before is left for the guest, and a channel that is
// bound later does not run until it is enabled.
func TestReset(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	for range 500 {
		bindChannel(t, g, 1)
		require.NoError(t, gpu(g).Reset())
		require.True(t, g.reports.Idle())
	}
	list(t, g, 1)
	bindAt(g, 1, instAt+gf100.InstanceSize)
	settle(g)
	require.False(t, f.Enabled(number(g, 1)))
}

// TestFailedChannels: errors come in the guest's own names. A channel that faulted gets no doorbell, for a step under way would execute what was
// submitted after the fault, until it is bound again. A refused method that was not skipped is refused
// again when its channel may run.
func TestFailedChannels(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	bindChannel(t, g, 7)
	ch := g.cardChannel(7)
	refused := func(n int) {
		t.Helper()
		require.Eventually(t, ev.saw(func() bool { return len(ev.pbdma) == n }), patience, tick)
		require.False(t, f.Enabled(ch.Card().ID()))
	}
	ch.Fault(card.Fault{Kind: card.NoMethod, Subchannel: 2, Method: 0x1234, Data: 5})
	refused(1)
	gpu(g).Channel(7, devgf100.Retry, 0)
	refused(2)
	require.Equal(t, ev.pbdma[0], ev.pbdma[1])
	require.EqualValues(t, 7, ev.pbdma[0].Channel)
	gpu(g).Channel(7, devgf100.Enable, 0)
	gpu(g).Channel(7, devgf100.Retry, 0)
	settle(g)
	refused(2) // it may not run
	gpu(g).Channel(7, devgf100.Enable, 1)
	refused(3)
	gpu(g).Channel(7, devgf100.Resume, 0)
	require.True(t, f.Enabled(ch.Card().ID()))

	ch.Fault(card.Fault{VA: 5})
	require.Eventually(t, ev.saw(func() bool { f := ev.faults[7]; return f.VA == 5 && f.Inst == ch.Place }), patience, tick)
	gpu(g).Channel(7, devgf100.Resume, 0)
	require.False(t, f.Enabled(ch.Card().ID()))
	store(g, 7, 9)
	gpu(g).Channel(7, devgf100.Doorbell, 0)
	settle(g)
	require.Empty(t, f.Doorbells())
	bindChannel(t, g, 7)
	require.Equal(t, byte(9), f.Bytes[g.cardChannel(7).Card().USERD().Addr+gf100.USERDGPPut])
	require.True(t, f.Enabled(number(g, 7)))
	status := fakecard.Reg("NV_PFIFO_ENGINE_STATUS")
	f.Set(status, gf100.EngineBusy|number(g, 7))
	require.EqualValues(t, gf100.EngineBusy|7, gpu(g).EngineStatus(0))
	f.Set(status, 0)
	bindChannel(t, g, 7)
	gpu(g).EndEngine(0)
	require.True(t, f.Enabled(number(g, 7)), "the engine served the channel before")
}
