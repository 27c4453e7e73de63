package aggregator

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

func TestErrorsReachTheirOwner(t *testing.T) {
	a, f := newAgg(t, Options{})
	g1, ev1 := addGuest(t, a, "a")
	g2, ev2 := addGuest(t, a, "b")
	bindChannel(t, g1, 7)
	bindChannel(t, g2, 7)
	ch := g2.cardChannel(7)
	f.raise(map[uint32]uint32{regFaultID: 1 << 0x15, regFault + 0x15*strideFault: uint32(ch.inst >> 12), regFaultLo + 0x15*strideFault: 0x1000, regFaultInfo + 0x15*strideFault: 0x42})
	require.Eventually(t, ev2.saw(func() bool { return len(ev2.faults) == 1 }), patience, tick)
	require.Equal(t, gf100.MMUFault{Unit: 0x15, Inst: instAt + 7*gf100.InstanceSize, VA: 0x1000, Info: 0x42}, ev2.faults[7])
	require.Zero(t, f.get(regFaultID))
	require.Zero(t, f.get(regChannel+uint32(ch.id)*8)&gf100.ChannelEnabled)

	one := g1.cardChannel(7)
	f.raise(map[uint32]uint32{regPBDMAIntr: gf100.PBDMAIntrMethod, regPBDMAMethod: 0x2_1234, regPBDMAData: 5, regPBDMAChannel: uint32(one.id)})
	require.Eventually(t, ev1.saw(func() bool { return len(ev1.pbdma) == 1 }), patience, tick)
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
	require.Eventually(t, ev1.saw(func() bool { return len(ev1.graph) == 1 }), patience, tick)
	require.Equal(t, gf100.GraphTrap{
		Intr: gf100.GraphIntrIllegalMthd, Inst: instAt + 7*gf100.InstanceSize, Subchannel: 3, Class: 0x9097, Method: 0x400, Data: 8,
	}, ev1.graph[7])
	require.Equal(t, uint32(graphGoOn), f.get(regGraphFIFO))
	require.Empty(t, ev1.faults)
	require.Empty(t, ev2.pbdma)
	require.Empty(t, ev2.graph)
}

// A guest that does not take its events does not delay others' events.
func TestSlowListener(t *testing.T) {
	a, f := newAgg(t, Options{})
	g1, ev1 := addGuest(t, a, "a")
	g2, ev2 := addGuest(t, a, "b")
	bindChannel(t, g1, 1)
	bindChannel(t, g2, 1)
	blocked := make(chan struct{})
	ev1.slow.Store(&blocked)
	defer close(blocked)
	for _, g := range []*Guest{g1, g1, g2} {
		f.raise(map[uint32]uint32{regFaultID: 1, regFault: uint32(g.cardChannel(1).inst >> 12)})
		require.Eventually(t, func() bool { return f.get(regFaultID) == 0 }, patience, tick)
	}
	require.Eventually(t, ev2.saw(func() bool { return len(ev2.faults) == 1 }), patience, tick)
}

// A guest that stops the engines again and again is quarantined, until a reset.
func TestTooManyErrors(t *testing.T) {
	a, f := newAgg(t, Options{ErrorBurst: 5, ErrorRate: 1e-9})
	g, _ := addGuest(t, a, "a")
	for range 6 {
		bindChannel(t, g, 1)
		f.raise(map[uint32]uint32{regFaultID: 1, regFault: uint32(g.cardChannel(1).inst >> 12)})
		require.Eventually(t, func() bool { return f.get(regFaultID) == 0 }, patience, tick)
	}
	require.Eventually(t, func() bool { return g.QuarantineReason() != "" && g.cardChannel(1) == nil }, patience, tick)
	g.Runlist(listAt>>12, 1)
	settle(g)
	require.False(t, g.RunlistPending())
	require.NoError(t, g.Reset())
	require.Empty(t, g.QuarantineReason())
	bindChannel(t, g, 1)
	require.NotNil(t, g.cardChannel(1))
}

// TestErrorsOfEndedChannels: the error of a channel that its guest has unbound does not reach the
// next channel of the same number, whether it came before the unbind or during it.
func TestErrorsOfEndedChannels(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: patience})
	g, ev := addGuest(t, a, "a")
	bindChannel(t, g, 2)
	fault := func() {
		f.raise(map[uint32]uint32{regFaultID: 1, regFault: uint32(g.agg.owner(0).inst >> 12)})
		require.Eventually(t, func() bool { return f.get(regFaultID) == 0 }, patience, tick)
	}
	delivery := make(chan struct{})
	ev.slow.Store(&delivery)
	g.Runlist(4<<20>>12, 1) // its error keeps the receiver busy
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.delivering
	}, patience, tick)
	fault()
	bindChannel(t, g, 2)
	require.True(t, f.enabled(g.cardChannel(2)))

	f.hold(regPreempt, true)
	g.Bind(2, 0xc0000000|(instAt+2*gf100.InstanceSize)>>12)
	require.Eventually(t, func() bool { return g.cardChannel(2) == nil }, patience, tick)
	fault()
	f.hold(regPreempt, false)
	settle(g)
	require.True(t, f.enabled(g.cardChannel(2)))
	ev.slow.Store(nil)
	close(delivery)
	settle(g)
	require.Eventually(t, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return !g.delivering && g.events.empty()
	}, patience, tick)
	ev.saw(func() bool { require.Empty(t, ev.faults); return true })()
}
