package aggregator

import (
	"encoding/binary"
	"fmt"
	"github.com/umbra-gpu/umbra/shadowpt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// rounds is how many rounds the guest's worker has begun.
func (g *Guest) rounds() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.work.begun
}

// TestChannelsLeaveInline: an idle channel is off the card when the trap that requests it
// ends. No round begins, and the guest sees the channel's saved state.
func TestChannelsLeaveInline(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, ev := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	for _, id := range []uint8{1, 2, 3} {
		bindChannel(t, g, id)
	}
	bindChannel(t, other, 1)
	list(t, g, 1, 2, 3)
	require.Eventually(t, ev.saw(func() bool { return ev.lists == 1 }), patience, tick)
	one, two := number(g, 1), number(g, 2)
	rounds := g.rounds()
	g.Enable(1, false)
	f.Forget()
	saveRef(t, f, g, 1, 5)
	g.Preempt(1)
	require.False(t, g.PreemptPending())
	require.Equal(t, []regWrite{{Reg: preempts, V: uint32(one)}}, f.WritesTo(preempts, 4))
	require.Equal(t, uint32(5), savedRef(t, g, 1))
	saveRef(t, f, g, 2, 6)
	commit(t, g, 1, 3)
	require.False(t, g.RunlistPending())
	require.Equal(t, regWrite{Reg: preempts, V: uint32(two)}, f.WritesTo(preempts, 4)[1])
	require.Equal(t, uint32(6), savedRef(t, g, 2))
	require.False(t, f.Enabled(two))
	require.True(t, f.Enabled(number(g, 3)))
	require.True(t, f.Enabled(number(other, 1)))
	require.Eventually(t, ev.saw(func() bool { return ev.lists == 2 }), patience, tick, "the guest is interrupted all the same")
	g.Preempt(99) // no channel: nothing waits, and nothing happens
	settleRound(g)

	// A list that adds a channel is left to the worker, which flushes deferred invalidates.
	before := g.rounds()
	require.LessOrEqual(t, before, rounds+1)
	commit(t, g, 1, 2, 3)
	settleRound(g)
	require.Equal(t, before+1, g.rounds())
	require.True(t, f.Enabled(two))
	require.False(t, f.Enabled(one), "its driver has stopped it")

	// While a round is under way, the worker does what is asked meanwhile.
	f.Hold(fakecard.Runlists, true)
	bindAt(g, 4, writeInstance(t, g, 4, dirAt, 0))
	eventually(t, g, func() bool { return g.work.current.Bind.Has(4) })
	f.Forget()
	g.Preempt(3)
	commit(t, g, 1, 3)
	require.True(t, g.PreemptPending() && g.RunlistPending())
	require.Empty(t, f.WritesTo(preempts, 4))
	f.Hold(fakecard.Runlists, false)
	settleRound(g)
	require.NotNil(t, g.cardChannel(4))
	require.Len(t, f.WritesTo(preempts, 4), 2)
	require.False(t, f.Enabled(two))
}

// slowCard leaves the preempts that are written while on is set pending until end is called.
type slowCard struct {
	*fakeCard
	on atomic.Bool
}

func (l *slowCard) Write32(bar int, off uint64, v uint32) {
	if l.on.Load() && bar == card.BAR0 && uint32(off) == preempts {
		l.Hold(preempts, true)
	}
	l.fakeCard.Write32(bar, off, v)
}

// TestChannelsThatDoNotLeave: what the card does not complete immediately is left to the
// worker: if the card was busy before, or still processes what the trap wrote, while a
// neighbour asks for the same. A channel that is listed again meanwhile runs again.
func TestChannelsThatDoNotLeave(t *testing.T) {
	for _, row := range []struct {
		written bool // pending after the write, not before
		delist  bool // by a runlist, not a preempt
		again   bool // listed again
	}{{false, false, false}, {true, false, false}, {true, true, false}, {false, true, true}} {
		t.Run(fmt.Sprintf("%+v", row), func(t *testing.T) {
			f := &slowCard{fakeCard: fakecard.New(fakeVRAM)}
			a := newAggOn(t, f, patience, Options{})
			g, _ := addGuest(t, a, "a")
			other, _ := addGuest(t, a, "b")
			bindChannel(t, g, 1)
			bindChannel(t, other, 1)
			release, releaseOther := hold(t, g), hold(t, other)
			rounds := g.rounds()
			f.Forget()
			f.on.Store(row.written)
			f.Hold(preempts, !row.written)
			pending := g.PreemptPending
			for _, g := range []*Guest{g, other} {
				if row.delist {
					commit(t, g)
				} else {
					g.Preempt(1)
				}
			}
			if row.delist {
				pending = g.RunlistPending
			}
			if row.again {
				commit(t, g, 1)
			}
			require.Equal(t, row.written, len(f.WritesTo(preempts, 4)) > 0, "the card has it already")
			require.True(t, pending())
			saveRef(t, f.fakeCard, g, 1, 7)
			f.on.Store(false)
			f.Hold(preempts, false)
			release()
			releaseOther()
			settleRound(g)
			settleRound(other)
			require.False(t, pending())
			require.Equal(t, rounds+1, g.rounds())
			require.Equal(t, uint32(7), savedRef(t, g, 1), "the state after the channel had left")
			require.Equal(t, row.again || !row.delist, f.Enabled(number(g, 1)))
			require.Equal(t, !row.delist, f.Enabled(number(other, 1)))
			for _, g := range []*Guest{g, other} {
				require.Contains(t, f.WritesTo(preempts, 4), regWrite{Reg: preempts, V: uint32(number(g, 1))})
			}
		})
	}
}

// TestRepeatedRequestsAreBounded: repeated requests reach the card a bounded number of times for each
// round that asks.
func TestRepeatedRequestsAreBounded(t *testing.T) {
	const times, channels = 200, 8
	for name, do := range map[string]func(g *Guest, i int) (idle int){ // rounds that do not ask
		"one less each time":               func(g *Guest, i int) int { g.Runlist(listAt>>12, 0x01f00000|uint32(channels-1-i%channels)); return 0 },
		"a preempt, and rounds without it": func(g *Guest, i int) int { g.Preempt(1); settleRound(g); g.Preempt(99); return 1 },
	} {
		t.Run(name, func(t *testing.T) {
			a, f := newAgg(t, Options{})
			g := addGuestWith(t, a, GuestConfig{Channels: channels})
			for i := range uint8(channels) {
				bindChannel(t, g, i)
			}
			list(t, g, 0, 1, 2, 3, 4, 5, 6, 7)
			begun := g.rounds()
			f.Forget()
			idle := 0
			for i := range times {
				idle += do(g, i)
				settleRound(g)
			}
			rounds, asked := int(g.rounds()-begun)-idle, len(f.WritesTo(preempts, 4))
			require.Greater(t, asked, rounds)
			require.LessOrEqual(t, asked-rounds, maxCredits*(rounds+1))
		})
	}
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
			g.Enable(1, false)
			g.Preempt(1)
			settleRound(g)
		}
		list(t, g, 1)
		saveRef(t, f, g, 1, 7)
		at := instAt + gf100.InstanceSize + uint64(gf100.InstRef.Offset)
		require.True(t, g.mem.Write(shadowpt.VRAM, at, binary.LittleEndian.AppendUint32(nil, 9)))
		g.Bind(1, 0)
		settle(g)
		require.Equal(t, want, savedRef(t, g, 1))
	}
}
