package aggregator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// A card that does not give a channel back in time: its guest is in safe mode, its
// neighbour goes on, nothing that the card may still use is used again, and when
// the card has come to itself a reset makes all well.
func TestCardKeepsAChannel(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: 20 * time.Millisecond})
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	bindChannel(t, g, 1)
	bindChannel(t, other, 1)
	list(t, g, 1)
	ch := g.cardChannel(1)
	f.set(regChannel+uint32(ch.id)*8, gf100.ChannelBusy)
	stuck := func(on bool) {
		f.hold(regEngRunlist, on)
		f.hold(regPreempt, on)
	}
	stuck(true)
	g.mu.Lock()
	g.channels[1].ch.stopped = true // its enable bit is the fake's busy bit, too
	g.mu.Unlock()
	keepBusy := func() { f.set(regChannel+uint32(ch.id)*8, gf100.ChannelBusy) }
	g.mu.Lock()
	g.setBound(1, 0, false)
	keepBusy()
	g.mu.Unlock()
	deadline := time.Now().Add(patience)
	for g.SafeMode() == "" && time.Now().Before(deadline) {
		keepBusy()
		time.Sleep(tick)
	}
	require.NotEmpty(t, g.SafeMode())
	keepBusy()
	require.NotZero(t, f.get(regChannelInst+uint32(ch.id)*8), "not unbound: the card may be in it")
	require.Same(t, ch, a.owner(ch.id))

	bindChannel(t, g, 2)
	require.Nil(t, g.cardChannel(2), "in safe mode nothing reaches the card")
	bindChannel(t, other, 2)
	require.NotNil(t, other.cardChannel(2))
	require.Empty(t, other.SafeMode())

	keepBusy()
	require.NoError(t, g.Reset())
	require.NotEmpty(t, g.SafeMode(), "the card still has it")
	f.set(regChannel+uint32(ch.id)*8, 0)
	stuck(false)
	require.NoError(t, g.Reset())
	require.Empty(t, g.SafeMode())
	require.Nil(t, a.owner(ch.id))
	bindChannel(t, g, 2)
	require.NotNil(t, g.cardChannel(2))
}

// A card that never answers holds nobody for ever.
func TestCardNeverAnswers(t *testing.T) {
	a, f := newAgg(t, Options{CardTimeout: 10 * time.Millisecond})
	g, _ := addGuest(t, a, "a")
	for id := range uint8(8) {
		bindChannel(t, g, id)
	}
	settleRound(g) // the last bind's own round is not to wait for the card
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, true)
	}
	waits, rounds := a.ctl.timeouts.Load(), g.rounds()
	g.Unmapped(0, 1<<20)
	require.NotEmpty(t, g.SafeMode())
	require.NoError(t, g.Reset())
	rounds = g.rounds() - rounds
	require.LessOrEqual(t, a.ctl.timeouts.Load()-waits, rounds, "a round waits in vain once")
	require.LessOrEqual(t, rounds, uint64(4), "one that was under way and one's own, for each of the two")
	require.NotZero(t, g.stats.CardTimeout.Load())
	err := g.Remove()
	require.ErrorContains(t, err, "has not let go")
	free := a.Free()
	_, err = a.AddGuest(GuestConfig{Name: "next", VRAM: 4 << 20, Tables: 1 << 20}, &told{})
	require.NoError(t, err)
	require.Less(t, a.Free(), free, "others go on, in other memory")
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, false)
	}
}

// frozen is a card that is asked by a server that then stands still for a while, and
// with it the card: it goes on when the server does.
type frozen struct {
	*fakeCard
	looks int
}

const (
	frozenFor = 20 * time.Millisecond
	frozenTo  = 10 // looks that the card still takes then
)

func (f *frozen) ReadBAR(bar int, off uint64, p []byte) {
	f.fakeCard.ReadBAR(bar, off, p)
	if uint32(off) != regEngRunlist {
		return
	}
	switch f.looks++; f.looks {
	case 1:
		time.Sleep(frozenFor)
	case frozenTo:
		f.hold(regEngRunlist, false)
	}
}

// A server that did not run for longer than it waits for the card finds that the card
// was no later than itself.
func TestServerThatStoodStill(t *testing.T) {
	f := &frozen{fakeCard: newFake(fakeVRAM)}
	var c control
	c.init(f, frozenFor/10, 1)
	f.hold(regEngRunlist, true)
	require.True(t, c.await(regEngRunlist, gf100.RunlistPending, 0))
	require.Equal(t, frozenTo+1, f.looks)
	require.Zero(t, c.timeouts.Load())

	f.hold(regEngRunlist, true) // for good
	require.False(t, c.await(regEngRunlist, gf100.RunlistPending, 0))
	require.Equal(t, uint64(1), c.timeouts.Load())
}
