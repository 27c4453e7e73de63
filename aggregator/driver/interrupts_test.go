package driver

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// TestErrorsReachTheirChannel: each error is acknowledged, stops the channel that it is about, and
// is reported to that channel's owner alone.
func TestErrorsReachTheirChannel(t *testing.T) {
	f := fakecard.New(8 << 20)
	d := newDriver(t, f, Options{})
	other, otherEv := running(t, newShare(t, d, 0, 1))
	ch, ev := running(t, newShare(t, d, 1, 1))
	inst := uint32(ch.inst >> 12)
	const unit = 0x15
	for i, c := range []struct {
		regs map[uint32]uint32
		want card.Fault
		then map[uint32]uint32
	}{
		{map[uint32]uint32{
			regFaultID: 1 << unit, regFault + unit*strideFault: inst, regFaultLo + unit*strideFault: 0x1000, regFaultHi + unit*strideFault: 2, regFaultInfo + unit*strideFault: 0x42,
		}, card.Fault{Engine: card.Copy0, VA: 0x200001000, Reason: shadowpt.PageNotPresent}, map[uint32]uint32{regFaultID: 0}},
		{map[uint32]uint32{
			regPBDMAIntr: gf100.PBDMAIntrMethod, regPBDMAMethod: 0x2_1234, regPBDMAData: 5, regPBDMAChannel: uint32(ch.id),
		}, card.Fault{Kind: card.NoMethod, Engine: card.NoEngine, Subchannel: 2, Method: 0x1234, Data: 5}, map[uint32]uint32{regPBDMAIntr: 0, regPBDMAMethod: methodPassed}},
		{map[uint32]uint32{
			regGraphIntr: gf100.GraphIntrIllegalMthd, regGraphContext: 1<<31 | inst, regGraphAddr: 3<<16 | 0x400, regGraphClass + 12: 0x9097, regGraphData: 8, regGraphError: 9,
		}, card.Fault{Kind: card.BadMethod, Subchannel: 3, Class: 0x9097, Method: 0x400, Data: 8},
			map[uint32]uint32{regGraphIntr: 0, regGraphFIFO: graphGoOn}},
		{map[uint32]uint32{
			regGraphIntr: gf100.GraphIntrTrap, regGraphContext: 1<<31 | inst, regGraphAddr: 1<<16 | 0x368, regGraphClass + 4: 0x90c0, regGraphData: 8, regGraphError: 0,
			regTrapGPCs: 1 << 2, regGPCTrap + 0x10000: 1 << 19, regTPCTrap + 0x11800: 2, regWarpError + 0x11800: 9, regGlobalError + 0x11800: 4,
		}, card.Fault{Kind: card.ProgramError, Subchannel: 1, Class: 0x90c0, Method: 0x368, Data: 8, Code: 4<<32 | 9},
			map[uint32]uint32{regGraphIntr: 0, regGraphFIFO: graphGoOn, regTrapGPCs: 1 << 2, regGPCTrap + 0x10000: 1 << 19, regWarpError + 0x11800: 0, regGlobalError + 0x11800: 4}},
		{map[uint32]uint32{
			fakecard.Reg("NV_PCE_FALCON_IRQSTAT"): copyRefused, regCopyContext: 1<<30 | inst, regCopyMailbox: 2<<27 | 0x104<<16 | 7, regCopyMailbox + 4: 6,
		}, card.Fault{Kind: card.BadData, Engine: card.Copy0, Subchannel: 2, Method: 0x410, Data: 6, Code: 7}, map[uint32]uint32{fakecard.Reg("NV_PCE_FALCON_IRQSTAT"): 0}},
	} {
		ch.Enable()
		f.Raise(c.regs)
		require.Eventually(t, func() bool { _, errors := ev.events(); return len(errors) == i+1 }, patience, tick)
		require.Equal(t, c.want, ev.errors[i])
		require.Eventually(t, func() bool { return f.Get(regPMCIntr) == 0 }, patience, tick)
		for reg, v := range c.then {
			require.Equal(t, v, f.Get(reg), "%#x", reg)
		}
		require.False(t, f.Enabled(ch.id))
		require.True(t, f.Enabled(other.id))
	}
	_, errors := otherEv.events()
	require.Empty(t, errors)

	f.Set(regEngineStatus+4*gf100.EngineCE0, gf100.EngineBusy|uint32(ch.id))
	require.Same(t, ev, d.Serving(card.Copy0))
	require.Nil(t, d.Serving(0))
}

// TestCardTellsWhoseEvents: a channel gets the events that the card says are its own, and those of
// a number without a channel are dropped.
func TestCardTellsWhoseEvents(t *testing.T) {
	f := fakecard.New(8 << 20)
	d := newDriver(t, f, Options{})
	s := newShare(t, d, 0, 2)
	a, evA := running(t, s)
	_, evB := running(t, s)
	for range 2 {
		f.Events = append(f.Events, card.ChannelEvent{Channel: a.id, Engines: 1 << gf100.EngineCE1}, card.ChannelEvent{Channel: 99, Engines: 1})
		f.Set(regEngEvent, 1<<gf100.EngineCE1)
		f.Set(regFIFOIntr, gf100.IntrEngine)
		f.Set(regPMCIntr, intrPFIFO)
		d.Poll()
		require.Zero(t, f.Get(regPMCIntr))
	}
	require.Equal(t, []card.EngineSet{1 << (card.Copy0 + 1), 1 << (card.Copy0 + 1)}, evA.engines)
	require.Empty(t, evB.engines)
}

// racingCard calls during before the card gets a doorbell.
type racingCard struct {
	*fakecard.Card
	during func()
}

func (r *racingCard) Write32(bar int, off uint64, v uint32) {
	if bar == card.BAR1 {
		r.during()
	}
	r.Card.Write32(bar, off, v)
}

// TestLookDuringDoorbell: a look at a channel that comes while it gets a doorbell does not hide that
// the channel runs.
func TestLookDuringDoorbell(t *testing.T) {
	f := &racingCard{Card: fakecard.New(8 << 20)}
	d := newDriver(t, f, Options{})
	ch, _ := running(t, newShare(t, d, 0, 1))
	require.True(t, ch.Quiet())
	done := make(chan struct{})
	f.during = func() {
		go func() {
			defer close(done)
			ch.Quiet()
		}()
		select {
		case <-done:
		case <-time.After(20 * time.Millisecond): // it waits for the doorbell
		}
		f.SetChannel(ch.id, channelStart|gf100.ChannelBusy)
	}
	ch.Doorbell(0)
	<-done
	require.False(t, ch.Quiet())
}

// askingCard always has something to report.
type askingCard struct {
	*fakecard.Card
	asked atomic.Int64
}

func (a *askingCard) Read32(bar int, off uint64) uint32 {
	if uint32(off) == regPMCIntr {
		a.asked.Add(1)
		return intrCE0
	}
	return a.Card.Read32(bar, off)
}

// TestInterruptBurst: a card that does not stop to interrupt is left alone for a while after so many
// reads. Close does not wait for that.
func TestInterruptBurst(t *testing.T) {
	for _, pause := range []time.Duration{time.Hour, time.Nanosecond} {
		f := &askingCard{Card: fakecard.New(1 << 20)}
		d, err := New(f, Options{interruptBurst: 3, interruptPause: pause})
		require.NoError(t, err)
		f.Raise(nil)
		least := int64(3)
		if pause < time.Hour {
			least = 7
		}
		require.Eventually(t, func() bool { return f.asked.Load() >= least }, patience, tick)
		d.Close()
		require.Equal(t, pause == time.Hour, f.asked.Load() == 3)
	}
}
