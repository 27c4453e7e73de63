package aggregator

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// enabled reports whether the card may run the card's channel.
func (f *fakeCard) enabled(ch *channel) bool {
	return f.get(regChannel+uint32(ch.id)*8)&gf100.ChannelEnabled != 0
}

// A guest that keeps its runlist from being scheduled stops only its own channels,
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
		require.False(t, f.enabled(g.cardChannel(id)), "%d", id)
	}
	require.True(t, f.enabled(other.cardChannel(1)))
	f.forget()
	g.Schedule(false) // as it is
	settle(g)
	require.Empty(t, f.writesTo(regChannel, gf100.Channels*8))
	g.Schedule(true)
	settle(g)
	require.True(t, f.enabled(g.cardChannel(1)))
	require.False(t, f.enabled(g.cardChannel(2)), "its driver has stopped it")
	require.True(t, f.enabled(g.cardChannel(3)))
}

// What the guest says of a channel while the round that binds it waits for the card
// is not lost: neither that it may run, nor that it may not.
func TestEnableWhileTheRoundGoesOn(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: patience})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	bindChannel(t, g, 2)
	g.Enable(1, false)
	under := func(what func() bool) {
		require.Eventually(t, func() bool {
			g.mu.Lock()
			defer g.mu.Unlock()
			return what()
		}, patience, tick)
	}
	// Two binds and a runlist, the last operation of a round, in one round.
	f.hold(regPreempt, true)
	g.Preempt(1)
	under(func() bool { return !g.current.preempt.empty() })
	f.hold(regEngRunlist, true)
	for _, id := range []uint8{1, 2} {
		g.Bind(id, 0xc0000000|(instAt+uint32(id)*gf100.InstanceSize)>>12)
	}
	g.Runlist(listAt>>12, 0)
	f.hold(regPreempt, false)
	under(func() bool {
		return g.current.runlist && !g.current.bind.empty() && g.channels[2].ch != nil && g.binding.empty()
	})
	require.False(t, f.enabled(g.cardChannel(1)))
	require.True(t, f.enabled(g.cardChannel(2)))
	g.Enable(1, true)
	g.Enable(2, false)
	f.hold(regEngRunlist, false)
	settle(g)
	require.True(t, f.enabled(g.cardChannel(1)))
	require.False(t, f.enabled(g.cardChannel(2)))
}

// A doorbell while nothing may run is not lost.
func TestDoorbellWhileNothingIsScheduled(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	f.forget()
	g.Schedule(false)
	g.Doorbell(1)
	settle(g)
	require.Len(t, f.rings(), 1)
	require.False(t, f.enabled(g.cardChannel(1)))
}

// The fault trigger ends the channel that the engine serves, or that it was seen
// to serve last, if it is the guest's own.
func TestFaultTrigger(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	other, otherEv := addGuest(t, a, "b")
	bindChannel(t, g, 5)
	bindChannel(t, other, 5)
	ce1 := regEngineStatus + uint32(gf100.EngineCE1)*4
	faults := func() (n int) { ev.saw(func() bool { n = len(ev.faults); return true })(); return n }

	g.TriggerFault(gf100.EngineCE1)
	f.set(ce1, gf100.EngineBusy|uint32(other.cardChannel(5).id))
	require.Zero(t, g.EngineStatus(gf100.EngineCE1), "a neighbour's channel")
	g.TriggerFault(gf100.EngineCE1)
	settle(g)
	require.Zero(t, faults(), "the engine has never been seen with a channel of this guest")
	require.True(t, f.enabled(g.cardChannel(5)))
	require.True(t, f.enabled(other.cardChannel(5)))

	f.set(ce1, gf100.EngineBusy|uint32(g.cardChannel(5).id))
	require.Equal(t, uint32(gf100.EngineBusy|5), g.EngineStatus(gf100.EngineCE1))
	f.set(ce1, 0)
	f.forget()
	g.TriggerFault(gf100.EngineCE1)
	require.Eventually(t, func() bool { return faults() == 1 }, patience, tick)
	require.Equal(t, gf100.MMUFault{
		Unit: 0x16, Inst: instAt + 5*gf100.InstanceSize, Info: uint32(shadowpt.PageNotPresent) | 1<<6 | 2<<8,
	}, ev.faults[5])
	require.False(t, f.enabled(g.cardChannel(5)))
	g.Enable(5, true)
	g.Resume(5)
	require.False(t, f.enabled(g.cardChannel(5)), "it stays off until it is bound again")
	require.Equal(t, uint64(1), g.stats.MMUFaults.Load())
	require.True(t, f.enabled(other.cardChannel(5)))
	require.Empty(t, otherEv.faults)
	require.Empty(t, f.writesTo(0x2a30, gf100.Engines*4), "the card's own register names the running channel")

	f.forget()
	require.True(t, g.eachRun(g.cardChannel(5).userd+gf100.USERDGPPut, []byte{9, 0, 0, 0}, true))
	g.Doorbell(5)
	settle(g)
	require.Empty(t, f.rings(), "a step that is under way would do what comes after the end")
	bindChannel(t, g, 5)
	require.Equal(t, uint32(9), g.agg.ctl.readVRAM(g.cardChannel(5).cardUSERD()+gf100.USERDGPPut))
	g.Doorbell(5)
	settle(g)
	require.Len(t, f.rings(), 1)
	g.TriggerFault(gf100.EngineCE1)
	settle(g)
	require.True(t, f.enabled(g.cardChannel(5)), "it was another channel that the engine was seen with")
}

// A refused method that was not skipped is refused again when its channel may run again.
// The channel continues when it is skipped.
func TestRefusedMethodIsTriedAgain(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	bindChannel(t, g, 7)
	ch := g.cardChannel(7)
	errors := func(n int) {
		t.Helper()
		require.Eventually(t, ev.saw(func() bool { return len(ev.pbdma) == n }), patience, tick)
	}
	f.raise(map[uint32]uint32{regPBDMAIntr: gf100.PBDMAIntrMethod, regPBDMAMethod: 0x2_1234, regPBDMAData: 5, regPBDMAChannel: uint32(ch.id)})
	errors(1)
	g.Retry(7)
	errors(2)
	require.Equal(t, ev.pbdma[0], ev.pbdma[1])
	require.False(t, f.enabled(ch))
	g.Enable(7, false)
	g.Retry(7)
	settle(g)
	errors(2) // it may not run
	g.Enable(7, true)
	errors(3)
	require.Equal(t, uint64(3), g.stats.PBDMAErrors.Load())
	g.Resume(7)
	require.True(t, f.enabled(ch))
	errors(3)
}

// An invalidate names the guest's own directories on the card, and all only for
// more than fit.
func TestInvalidateNamesDirectories(t *testing.T) {
	a, f := newAgg(t, Options{InvalidateDirs: 3})
	g, _ := addGuest(t, a, "a")
	policy := shadowpt.Policy{}
	policy.Sync, policy.Scan = shadowpt.SyncFlush, shadowpt.ScanFull // else there is nothing to forget
	require.NoError(t, g.SetShadow(policy))
	other, _ := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	bindChannel(t, other, 1)
	named := func() (pdbs, commands []uint32) {
		for _, w := range f.writesTo(regInvalidatePDB, 4) {
			pdbs = append(pdbs, w.v)
		}
		for _, w := range f.writesTo(regInvalidate, 4) {
			commands = append(commands, w.v)
		}
		return pdbs, commands
	}
	f.forget()
	g.Invalidate(0, gf100.InvalidateGo|gf100.InvalidateAllDirs)
	settle(g)
	dir := g.cardChannel(1).space.shadow.Dir()
	pdbs, commands := named()
	require.Equal(t, []uint32{uint32(dir>>12) << 4}, pdbs)
	require.Equal(t, []uint32{gf100.InvalidateGo | gf100.InvalidateAllPages}, commands)
	require.NotEqual(t, dir, other.cardChannel(1).space.shadow.Dir())

	f.forget()
	require.True(t, a.ctl.invalidate(make([]uint64, 3)...))
	pdbs, _ = named()
	require.Len(t, pdbs, 3)

	f.forget()
	require.True(t, a.ctl.invalidate(make([]uint64, 4)...))
	pdbs, commands = named()
	require.Equal(t, []uint32{0}, pdbs)
	require.Equal(t, []uint32{gf100.InvalidateGo | gf100.InvalidateAllDirs | gf100.InvalidateAllPages}, commands)
}

// TestScheduleFlushesFirst: a channel that may run again does so after deferred invalidates.
func TestScheduleFlushesFirst(t *testing.T) {
	a, f := newAgg(t, Options{})
	g := addGuestWith(t, a, GuestConfig{Shadow: shadowpt.Policy{Sync: shadowpt.SyncLazy, Scan: shadowpt.ScanIncremental}})
	bindChannel(t, g, 1)
	const table = 0x200000
	pde := shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}
	require.True(t, g.eachRun(dirAt, binary.LittleEndian.AppendUint64(nil, pde.Encode()), true))
	g.Schedule(false)
	settle(g)
	require.True(t, g.eachRun(table, binary.LittleEndian.AppendUint64(nil, shadowpt.PTE{Valid: true}.Encode()), true))
	g.Invalidate(dirAt>>12<<4, 1<<31|1)
	require.True(t, g.Invalidated())
	f.forget()
	g.Schedule(true)
	settle(g)
	channel := regChannel + uint32(g.cardChannel(1).id)*strideChannel
	var order []uint32
	for _, w := range f.writesTo(0, gf100.SpaceSize) {
		if w.reg == regInvalidate || w.reg == channel {
			order = append(order, w.reg)
		}
	}
	require.Equal(t, []uint32{regInvalidate, channel}, order)
}
