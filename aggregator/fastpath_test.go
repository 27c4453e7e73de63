package aggregator

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// rounds is how many rounds the guest's goroutine has begun.
func (g *Guest) rounds() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.begun
}

// runlistOf writes a runlist and has it committed, without waiting.
func runlistOf(t *testing.T, g *Guest, ids ...uint64) {
	t.Helper()
	var raw []byte
	for _, id := range ids {
		raw = binary.LittleEndian.AppendUint64(raw, id)
	}
	require.True(t, g.eachRun(listAt, raw, true))
	g.Runlist(listAt>>12, 0x01f00000|uint32(len(ids)))
}

// TestChannelsLeaveInline: an idle channel is off the card when the trap that requests it
// ends. No round begins, and the guest sees the channel's saved state.
func TestChannelsLeaveInline(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: patience})
	g, ev := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	for _, id := range []uint8{1, 2, 3} {
		bindChannel(t, g, id)
	}
	bindChannel(t, other, 1)
	list(t, g, 1, 2, 3)
	list(t, other, 1)
	require.Eventually(t, ev.saw(func() bool { return ev.lists == 1 }), patience, tick)
	ch := g.cardChannel(1)
	reference := func(v uint32) {
		f.WriteVRAM(ch.inst+uint64(gf100.InstRef.Offset), binary.LittleEndian.AppendUint32(nil, v))
	}
	seen := func() uint32 {
		var b [gf100.InstanceSize]byte
		require.True(t, g.eachRun(instAt+gf100.InstanceSize, b[:], false))
		return gf100.InstRef.Get(b[:])
	}
	rounds := g.rounds()
	g.Enable(1, false)
	f.forget()
	reference(5)
	g.Preempt(1)
	require.False(t, g.PreemptPending())
	require.Equal(t, []regWrite{{regPreempt, uint32(ch.id)}}, f.writesTo(regPreempt, 4))
	require.Equal(t, uint32(5), seen())
	reference(6)
	runlistOf(t, g, 2, 3)
	require.False(t, g.RunlistPending())
	want := []uint32{uint32(g.cardChannel(2).id), uint32(g.cardChannel(3).id), uint32(other.cardChannel(1).id)}
	require.ElementsMatch(t, want, f.runlist())
	require.Equal(t, uint32(6), seen())
	require.Eventually(t, ev.saw(func() bool { return ev.lists == 2 }), patience, tick, "the guest is interrupted all the same")
	g.Preempt(99) // no channel: nothing waits, and nothing happens
	settleRound(g)

	// A list that adds a channel is left to the worker, which flushes deferred invalidates.
	before := g.rounds()
	require.LessOrEqual(t, before, rounds+1)
	runlistOf(t, g, 1, 2, 3)
	settleRound(g)
	require.Equal(t, before+1, g.rounds())
	require.ElementsMatch(t, append(want, uint32(ch.id)), f.runlist())
}

// late is a card that leaves the write of a register pending until end is called.
type late struct {
	*fakeCard
	reg   uint32 // written
	state uint32 // reads pending
	on    atomic.Bool
}

func (l *late) WriteBAR(bar int, off uint64, p []byte) {
	if l.on.Load() && bar == card.BAR0 && uint32(off) == l.reg {
		l.hold(l.state, true)
	}
	l.fakeCard.WriteBAR(bar, off, p)
}

func (l *late) end() {
	l.on.Store(false)
	l.hold(l.state, false)
}

func newLate(t *testing.T, reg, state uint32) (*Aggregator, *late) {
	t.Helper()
	l := &late{fakeCard: newFake(fakeVRAM), reg: reg, state: state}
	a, err := NewWith(l, Options{CardTimeout: patience})
	require.NoError(t, err)
	t.Cleanup(func() {
		l.end()
		for _, g := range a.everybody() {
			require.NoError(t, g.Remove())
		}
		require.NoError(t, a.Close())
	})
	return a, l
}

// TestChannelsThatDoNotLeave: the worker does operations that the card does not complete
// immediately: because it was busy before, or still processes the trap's write, while a
// neighbour commits or preempts too.
func TestChannelsThatDoNotLeave(t *testing.T) {
	for _, row := range []struct {
		name       string
		reg, state uint32
		written    bool // pending after the write, not before
	}{
		{"preempt, busy before", regPreempt, regPreempt, false},
		{"preempt, pending after it", regPreempt, regPreempt, true},
		{"runlist, busy before", regRunlist, regEngRunlist, false},
		{"runlist, pending after it", regRunlist, regEngRunlist, true},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, f := newLate(t, row.reg, row.state)
			g, _ := addGuest(t, a, "a")
			other, _ := addGuest(t, a, "b")
			bindChannel(t, g, 1)
			bindChannel(t, other, 2)
			bindChannel(t, other, 3)
			list(t, g, 1)
			list(t, other, 2)
			ch := g.cardChannel(1)
			var numbers []uint32 // the card's, of the neighbour's
			for _, id := range []uint8{2, 3} {
				numbers = append(numbers, uint32(other.cardChannel(id).id))
			}
			rounds := g.rounds()
			f.forget()
			if row.written {
				f.on.Store(true)
			} else {
				f.hold(row.state, true)
			}
			pending := g.PreemptPending
			if row.reg == regPreempt {
				g.Preempt(1)
				other.Preempt(2)
			} else {
				runlistOf(t, g)
				pending = g.RunlistPending
				runlistOf(t, other, 2, 3)
			}
			if row.written {
				require.NotEmpty(t, f.writesTo(row.reg, 4), "the card has it already")
			}
			require.True(t, pending())
			f.WriteVRAM(ch.inst+uint64(gf100.InstRef.Offset), binary.LittleEndian.AppendUint32(nil, 7))
			f.end()
			settleRound(g)
			settleRound(other)
			require.False(t, pending())
			require.Equal(t, rounds+1, g.rounds())
			var b [gf100.InstanceSize]byte
			require.True(t, g.eachRun(instAt+gf100.InstanceSize, b[:], false))
			require.Equal(t, uint32(7), gf100.InstRef.Get(b[:]), "the state after the channel had left")
			a.mu.Lock()
			listed := ch.listed
			a.mu.Unlock()
			if row.reg == regPreempt {
				require.True(t, listed)
				require.ElementsMatch(t, []uint32{uint32(ch.id), numbers[0]}, f.runlist())
				require.Subset(t, f.writesTo(regPreempt, 4), []regWrite{{regPreempt, uint32(ch.id)}, {regPreempt, numbers[0]}})
				return
			}
			require.False(t, listed)
			require.ElementsMatch(t, numbers, f.runlist())
		})
	}
}

// asked returns how many runlists and preempts the card got.
func (f *fakeCard) asked() uint64 {
	return uint64(len(f.writesTo(regRunlist, 4)) + len(f.writesTo(regPreempt, 4)))
}

// TestRepeatedRequestsAreBounded: repeated requests reach the card once a round, and a bounded
// number of times inline.
func TestRepeatedRequestsAreBounded(t *testing.T) {
	const times, channels = 200, 8
	all := make([]uint64, channels)
	for i := range all {
		all[i] = uint64(i)
	}
	for _, row := range []struct {
		name          string
		waits         bool // for each
		inlineCredits uint64
		idle          uint64 // rounds each time that do not ask
		do            func(t *testing.T, g *Guest, i int)
	}{
		{"the same list", false, 0, 0, func(t *testing.T, g *Guest, i int) { g.Runlist(listAt>>12, 0x01f00000|channels) }},
		{"one less each time", true, maxInlineCredits, 0, func(t *testing.T, g *Guest, i int) {
			g.Runlist(listAt>>12, 0x01f00000|uint32(channels-1-i%channels))
		}},
		{"a preempt of a channel that is off", true, 0, 0, func(t *testing.T, g *Guest, i int) { g.Preempt(3) }},
		{"a preempt, and rounds that ask nothing", true, maxInlineCredits, 1, func(t *testing.T, g *Guest, i int) {
			g.Preempt(1)
			settleRound(g)
			g.Preempt(99)
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			a, f := newAgg(t, Options{CardTimeout: patience})
			g := addGuestWith(t, a, GuestConfig{Channels: channels})
			for i := range uint8(channels) {
				bindChannel(t, g, i)
			}
			g.Enable(3, false)
			runlistOf(t, g, all...)
			settleRound(g)
			g.Preempt(3)
			settleRound(g)
			rounds := g.rounds()
			f.forget()
			for i := range times {
				row.do(t, g, i)
				if row.waits {
					settleRound(g)
				}
			}
			settleRound(g)
			rounds = g.rounds() - rounds - row.idle*times
			asked := f.asked()
			t.Logf("%d times: the card was asked %d times, %d of them by rounds", times, asked, rounds)
			require.NotZero(t, asked)
			require.LessOrEqual(t, asked-rounds, row.inlineCredits*(rounds+1))
			require.Equal(t, row.inlineCredits > 0, asked > rounds)
		})
	}
}

// TestChannelsThatAreListedAgain: a channel that left the list and is on it again may have
// run: its state is saved when it ends. One that was disabled and preempted has not run, and
// the guest may have reused its memory.
func TestChannelsThatAreListedAgain(t *testing.T) {
	for on, want := range map[bool]uint32{true: 7, false: 9} {
		a, f := newAgg(t, Options{CardTimeout: patience})
		g, _ := addGuest(t, a, "a")
		bindChannel(t, g, 1)
		list(t, g, 1)
		if on {
			list(t, g)
		} else {
			g.Enable(1, false)
			g.Preempt(1)
			settleRound(g)
		}
		list(t, g, 1)
		at := uint64(gf100.InstRef.Offset)
		f.WriteVRAM(g.cardChannel(1).inst+at, binary.LittleEndian.AppendUint32(nil, 7))
		require.True(t, g.eachRun(instAt+gf100.InstanceSize+at, binary.LittleEndian.AppendUint32(nil, 9), true))
		g.Bind(1, 0)
		settle(g)
		var b [4]byte
		require.True(t, g.eachRun(instAt+gf100.InstanceSize+at, b[:], false))
		require.Equal(t, want, binary.LittleEndian.Uint32(b[:]))
	}
}
