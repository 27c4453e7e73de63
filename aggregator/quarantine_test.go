package aggregator

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// TestCardKeepsAChannel: if the card does not give a channel back in time, its guest is
// quarantined and its neighbour goes on. Nothing that the card may still use is used again. When
// the card has given it back a reset ends the quarantine.
func TestCardKeepsAChannel(t *testing.T) {
	f := fakecard.New(fakeVRAM)
	a := newAggOn(t, f, 20*time.Millisecond, Options{})
	g, _ := addGuest(t, a, "a")
	other, _ := addGuest(t, a, "b")
	for _, id := range []uint8{1, 3} {
		bindChannel(t, g, id)
	}
	bindChannel(t, other, 1)
	ids := []uint32{number(g, 1), number(g, 3)}
	for _, id := range ids {
		f.SetChannel(id, gf100.ChannelBusy|1)
	}
	f.HoldAll(true)
	gpu(g).Channel(1, devgf100.Bind, 0)
	require.Eventually(t, func() bool { return g.QuarantineReason() != "" && g.cardChannel(3) == nil }, patience, tick)
	settle(g)
	owned := func(id uint32) bool {
		ch := g.channels.ByNumber(id)
		return ch != nil
	}
	for _, id := range ids {
		_, bound := f.Instance(id)
		require.True(t, bound, "the card may be in its instance block")
		require.True(t, owned(id))
	}

	f.HoldAll(false)
	bindChannel(t, g, 2)
	require.Nil(t, g.cardChannel(2), "in quarantine nothing reaches the card")
	bindChannel(t, other, 2)
	require.ElementsMatch(t, []uint32{uint32(number(other, 1)), uint32(number(other, 2))}, f.Runlist(), "the others are not to run again")
	require.Empty(t, other.QuarantineReason())

	require.NoError(t, gpu(g).Reset())
	require.NotEmpty(t, g.QuarantineReason(), "the card still has them")
	for _, id := range ids {
		f.SetChannel(id, 0)
	}
	require.NoError(t, gpu(g).Reset())
	require.Empty(t, g.QuarantineReason())
	require.False(t, owned(ids[0]))
	bindChannel(t, g, 2)
	require.NotNil(t, g.cardChannel(2))
}

// TestCardNeverAnswers: nobody waits for ever for a card that never answers.
func TestCardNeverAnswers(t *testing.T) {
	f := fakecard.New(fakeVRAM)
	a := newAggOn(t, f, 10*time.Millisecond, Options{})
	g, _ := addGuest(t, a, "a")
	for id := range uint8(8) {
		bindChannel(t, g, id)
	}
	settleRound(g) // the last bind's own round is not to wait for the card
	f.HoldAll(true)
	rounds := g.rounds()
	require.NoError(t, gpu(g).Reset())
	rounds = g.rounds() - rounds
	waits := g.stats.Channels.CardTimeout.Load()
	require.LessOrEqual(t, waits, rounds, "a round waits once for a channel to leave")
	require.LessOrEqual(t, rounds, uint64(2))
	require.NotZero(t, waits)
	require.ErrorContains(t, g.Remove(), "still in use by the card")
	free := a.Free()
	_, err := addFace(a, GuestConfig{Name: "next", VRAM: 4 << 20, Tables: 1 << 20}, newRecorder())
	require.NoError(t, err)
	require.Less(t, a.Free(), free, "others go on, in other memory")
}
