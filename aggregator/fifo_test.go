package aggregator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// TestSchedule: a guest that keeps its runlist from being scheduled stops only its own channels,
// including later ones.
func TestSchedule(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	bindChannel(t, g, 2)
	bindChannel(t, other, 1)
	g.Enable(2, false)
	g.Schedule(false)
	settle(g)
	bindChannel(t, g, 3)
	g.Enable(1, true)
	for _, id := range []uint8{1, 2, 3} {
		require.False(t, f.Enabled(number(g, id)), "%d", id)
	}
	require.True(t, f.Enabled(number(other, 1)))
	f.Forget()
	g.Schedule(false) // as it is
	settle(g)
	require.Empty(t, f.WritesTo(0, 1<<24))
	g.Schedule(true)
	settle(g)
	require.True(t, f.Enabled(number(g, 1)))
	require.False(t, f.Enabled(number(g, 2)), "its driver has stopped it")
	require.True(t, f.Enabled(number(g, 3)))
}

// TestEnableDuringBind: a channel that is enabled or disabled while the round that binds it waits
// for the card follows.
func TestEnableDuringBind(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	list(t, g, 1, 2)
	g.Enable(2, true)
	release := hold(t, g)
	f.Hold(runlists, true)
	for _, id := range []uint8{1, 2} {
		bindAt(g, id, writeInstance(t, g, uint64(id), dirAt, 0))
	}
	release()
	eventually(t, g, func() bool { return !g.work.current.Bind.Empty() && g.channels.Rebinding.Empty() })
	require.False(t, f.Enabled(number(g, 1)))
	require.True(t, f.Enabled(number(g, 2)))
	g.Enable(1, true)
	g.Enable(2, false)
	f.Hold(runlists, false)
	settle(g)
	require.True(t, f.Enabled(number(g, 1)))
	require.False(t, f.Enabled(number(g, 2)))
}

// TestFaultTrigger: the fault trigger ends the channel that the engine serves, or was seen to serve
// last, if it is the guest's own.
func TestFaultTrigger(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	other, otherEv := addGuest(t, a, "b")
	bindChannel(t, g, 5)
	bindChannel(t, other, 5)
	ce1 := regEngineStatus + uint32(gf100.EngineCE1)*4
	faults := func() (n int) { ev.saw(func() bool { n = len(ev.faults); return true })(); return n }

	g.TriggerFault(gf100.EngineCE1)
	f.Set(ce1, gf100.EngineBusy|uint32(number(other, 5)))
	require.Zero(t, g.EngineStatus(gf100.EngineCE1), "a neighbour's channel")
	g.TriggerFault(gf100.EngineCE1)
	settle(g)
	require.Zero(t, faults(), "the engine has never been seen with a channel of this guest")
	require.True(t, f.Enabled(number(g, 5)))
	require.True(t, f.Enabled(number(other, 5)))

	f.Set(ce1, gf100.EngineBusy|uint32(number(g, 5)))
	require.Equal(t, uint32(gf100.EngineBusy|5), g.EngineStatus(gf100.EngineCE1))
	f.Set(ce1, 0)
	f.Forget()
	g.TriggerFault(gf100.EngineCE1)
	require.Eventually(t, func() bool { return faults() == 1 }, patience, tick)
	require.Equal(t, gf100.MMUFault{
		Unit: 0x16, Inst: instAt + 5*gf100.InstanceSize, Info: uint32(shadowpt.PageNotPresent) | 1<<6 | 2<<8,
	}, ev.faults[5])
	require.False(t, f.Enabled(number(g, 5)))
	g.Enable(5, true)
	g.Resume(5)
	require.False(t, f.Enabled(number(g, 5)), "it stays off until it is bound again")
	require.Equal(t, uint64(1), g.stats.FIFO.MMUFaults.Load())
	require.True(t, f.Enabled(number(other, 5)))
	require.Empty(t, otherEv.faults)
	require.Empty(t, f.WritesTo(fakecard.Reg("NV_PFIFO_MMU_FAULT_TRIGGER"), gf100.Engines*4), "the card's own register names the running channel")

	f.Forget()
	require.True(t, g.mem.Write(shadowpt.VRAM, userdAt+5*gf100.USERDSize+gf100.USERDGPPut, []byte{9, 0, 0, 0}))
	g.Doorbell(5)
	settle(g)
	require.Empty(t, f.Doorbells(), "a step under way would execute what was submitted after the fault")
	bindChannel(t, g, 5)
	require.Equal(t, byte(9), f.Bytes[g.cardChannel(5).Card().USERD().Addr+gf100.USERDGPPut])
	g.Doorbell(5)
	settle(g)
	require.Len(t, f.Doorbells(), 1)
	g.TriggerFault(gf100.EngineCE1)
	settle(g)
	require.True(t, f.Enabled(number(g, 5)), "it was another channel that the engine was seen with")
}

// TestRefusedMethodIsTriedAgain: a refused method that was not skipped is refused again when its
// channel may run again. The channel continues when it is skipped.
func TestRefusedMethodIsTriedAgain(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	bindChannel(t, g, 7)
	ch := g.cardChannel(7)
	errors := func(n int) {
		t.Helper()
		require.Eventually(t, ev.saw(func() bool { return len(ev.pbdma) == n }), patience, tick)
	}
	ch.PBDMAError(gf100.PBDMAError{Intr: gf100.PBDMAIntrMethod, Method: 0x2_1234, Data: 5})
	errors(1)
	g.Retry(7)
	errors(2)
	require.Equal(t, ev.pbdma[0], ev.pbdma[1])
	require.False(t, f.Enabled(ch.Card().ID()))
	g.Enable(7, false)
	g.Retry(7)
	settle(g)
	errors(2) // it may not run
	g.Enable(7, true)
	errors(3)
	require.Equal(t, uint64(3), g.stats.FIFO.PBDMAErrors.Load())
	g.Resume(7)
	require.True(t, f.Enabled(ch.Card().ID()))
	errors(3)
}

// TestScheduleFlushesFirst: a channel that may run again does so after deferred invalidates.
func TestScheduleFlushesFirst(t *testing.T) {
	a, f := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{})
	bindChannel(t, g, 1)
	writeEntry(t, g, dirAt, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: 0x200000}}.Encode())
	g.Schedule(false)
	settle(g)
	writeEntry(t, g, 0x200000, shadowpt.PTE{Valid: true}.Encode())
	invalidate(g)
	require.True(t, g.Invalidated())
	f.Hold(invalidates, true)
	f.Forget()
	g.Schedule(true)
	require.Eventually(t, func() bool { return len(f.WritesTo(regInvalidate, 4)) > 0 }, patience, tick/10)
	require.False(t, f.Enabled(number(g, 1)))
	f.Hold(invalidates, false)
	settle(g)
	require.True(t, f.Enabled(number(g, 1)))
}
