package aggregator

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

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

// A channel that has nothing more to do is off the card when the trap ends that asks for it:
// no round is begun, and the guest sees what the card left of it.
func TestChannelsLeaveAtOnce(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: patience})
	g, ev := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	for _, id := range []uint8{1, 2, 3} {
		bindChannel(t, g, id)
	}
	bindChannel(t, other, 1)
	list(t, g, 1, 2, 3)
	list(t, other, 1)
	require.Eventually(t, ev.heard(func() bool { return ev.lists == 1 }), patience, tick)
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
	require.Eventually(t, ev.heard(func() bool { return ev.lists == 2 }), patience, tick, "the guest is interrupted all the same")
	g.Preempt(99) // no channel: nothing waits, and nothing happens
	settleRound(g)

	// A list that has something new is the goroutine's: what is owed is done before.
	before := g.rounds()
	require.LessOrEqual(t, before, rounds+1)
	runlistOf(t, g, 1, 2, 3)
	settleRound(g)
	require.Equal(t, before+1, g.rounds())
	require.ElementsMatch(t, append(want, uint32(ch.id)), f.runlist())
}

// What the card does not do at once is the goroutine's, as if it had not been tried: it
// sees who leaves.
func TestChannelsThatDoNotLeaveAtOnce(t *testing.T) {
	for name, reg := range map[string]uint32{"preempt": regPreempt, "runlist": regEngRunlist} {
		t.Run(name, func(t *testing.T) {
			a, f := newAgg(t, Options{CardTimeout: patience})
			g, _ := addGuest(t, a, "a")
			bindChannel(t, g, 1)
			list(t, g, 1)
			ch := g.cardChannel(1)
			rounds := g.rounds()
			f.hold(reg, true)
			pending := g.PreemptPending
			if reg == regPreempt {
				g.Preempt(1)
			} else {
				runlistOf(t, g)
				pending = g.RunlistPending
			}
			require.True(t, pending())
			f.WriteVRAM(ch.inst+uint64(gf100.InstRef.Offset), binary.LittleEndian.AppendUint32(nil, 7))
			f.hold(reg, false)
			settleRound(g)
			require.False(t, pending())
			require.Equal(t, rounds+1, g.rounds())
			var b [gf100.InstanceSize]byte
			require.True(t, g.eachRun(instAt+gf100.InstanceSize, b[:], false))
			require.Equal(t, uint32(7), gf100.InstRef.Get(b[:]), "what the card left, after it had left")
			require.Equal(t, reg == regEngRunlist, len(f.runlist()) == 0)
		})
	}
}

// One trap takes no more than some channels off the card.
func TestManyChannelsLeaveInARound(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: patience})
	g, _ := addGuest(t, a, "a")
	var ids []uint32
	for id := range uint8(leaveAtOnce + 1) {
		bindChannel(t, g, id)
		ids = append(ids, uint32(id))
	}
	list(t, g, ids...)
	rounds := g.rounds()
	runlistOf(t, g)
	settleRound(g)
	require.Equal(t, rounds+1, g.rounds())
	require.Empty(t, f.runlist())
}
