package aggregator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// A card that does not return a channel in time: its guest is quarantined, its neighbour
// continues, no memory that the card may still use is reused, and a reset repairs all once
// the card works again.
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
	for g.QuarantineReason() == "" && time.Now().Before(deadline) {
		keepBusy()
		time.Sleep(tick)
	}
	require.NotEmpty(t, g.QuarantineReason())
	keepBusy()
	require.NotZero(t, f.get(regChannelInst+uint32(ch.id)*8), "not unbound: the card may be in it")
	require.Same(t, ch, a.owner(ch.id))

	bindChannel(t, g, 2)
	require.Nil(t, g.cardChannel(2), "in quarantine nothing reaches the card")
	bindChannel(t, other, 2)
	require.NotNil(t, other.cardChannel(2))
	require.Empty(t, other.QuarantineReason())

	keepBusy()
	require.NoError(t, g.Reset())
	require.NotEmpty(t, g.QuarantineReason(), "the card still has it")
	f.set(regChannel+uint32(ch.id)*8, 0)
	stuck(false)
	require.NoError(t, g.Reset())
	require.Empty(t, g.QuarantineReason())
	require.Nil(t, a.owner(ch.id))
	bindChannel(t, g, 2)
	require.NotNil(t, g.cardChannel(2))
}

// A card that never answers blocks no caller for ever.
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
	require.NotEmpty(t, g.QuarantineReason())
	require.NoError(t, g.Reset())
	rounds = g.rounds() - rounds
	require.LessOrEqual(t, a.ctl.timeouts.Load()-waits, rounds, "a round waits in vain once")
	require.LessOrEqual(t, rounds, uint64(4), "one that was under way and one's own, for each of the two")
	require.NotZero(t, g.stats.CardTimeout.Load())
	err := g.Remove()
	require.ErrorContains(t, err, "still in use by the card")
	free := a.Free()
	_, err = a.AddGuest(GuestConfig{Name: "next", VRAM: 4 << 20, Tables: 1 << 20}, &recorder{})
	require.NoError(t, err)
	require.Less(t, a.Free(), free, "others go on, in other memory")
	for _, reg := range []uint32{regMMUCtrl, regEngRunlist, regPreempt} {
		f.hold(reg, false)
	}
}

// frozen is a card of a server that is descheduled for a while, together with the card: the
// card continues when the server does, and completes the operation some polls later.
type frozen struct {
	*fakeCard
	at, need int // the look, and how many more the card takes
	looks    int
}

const (
	frozenWait = 500 * time.Millisecond
	frozenFor  = 600 * time.Millisecond
)

func (f *frozen) ReadBAR(bar int, off uint64, p []byte) {
	f.fakeCard.ReadBAR(bar, off, p)
	if uint32(off) != regEngRunlist {
		return
	}
	f.looks++
	if f.looks == f.at {
		time.Sleep(frozenFor)
	}
	if f.looks == f.at+f.need {
		f.hold(regEngRunlist, false)
	}
}

// A server that did not run for longer than it waits for the card finds that the card
// was no later than itself, whenever in the wait that was. A card that does not do it is
// waited for to the bound and a little longer.
func TestDescheduledServer(t *testing.T) {
	for _, at := range []int{1, 10, 40, 200} {
		for _, need := range []int{3, pollGrace - 1} {
			t.Run(fmt.Sprintf("at look %d, for %d looks", at, need), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := &frozen{fakeCard: newFake(fakeVRAM / 16), at: at, need: need}
					var c control
					c.init(f, frozenWait, 1)
					f.hold(regEngRunlist, true)
					require.True(t, c.await(regEngRunlist, gf100.RunlistPending, 0))
					require.Equal(t, at+need+1, f.looks)
					require.Zero(t, c.timeouts.Load())
				})
			})
		}
	}
	for _, wait := range []time.Duration{time.Nanosecond, 10 * time.Millisecond, frozenWait} {
		t.Run(fmt.Sprintf("for good, %v", wait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(fakeVRAM / 16)
				var c control
				c.init(f, wait, 1)
				f.hold(regEngRunlist, true)
				begin := time.Now()
				require.False(t, c.await(regEngRunlist, gf100.RunlistPending, 0))
				require.Equal(t, uint64(1), c.timeouts.Load())
				took := time.Since(begin)
				require.Greater(t, took, wait)
				require.LessOrEqual(t, took, wait+pollGrace*pollMax)
			})
		})
	}
}
