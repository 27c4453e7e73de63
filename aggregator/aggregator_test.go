package aggregator

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

func TestBringUp(t *testing.T) {
	_, f := newAgg(t, Options{})
	require.Equal(t, uint32(1), f.get(regPMCIntrEn))
	require.Equal(t, uint32(intrOurs), f.get(regPMCIntrMask0))
	require.Equal(t, uint32(1), f.get(regFIFOEnable))
	require.Equal(t, uint32(1<<28), f.get(regUSERDBase))
	require.Equal(t, ^uint32(0), f.get(regGraphIntrEn))
	// BAR1 shows the poll area, and nothing after it.
	block := f.vram[uint64(f.get(regBAR1Block)&gf100.BlockAddr)<<12:][:gf100.InstanceSize]
	s := instanceSpace(block)
	require.Equal(t, uint64(gf100.Channels*gf100.USERDSize-1), s.Limit)
}

// Each guest always has its guaranteed channels, for any use by the others, and guarantees
// never exceed the card's channels.
func TestChannelsAreGuaranteed(t *testing.T) {
	for _, promised := range []int{0, 1, 60} {
		a, _ := newAgg(t, Options{})
		greedy, _ := addGuest(t, a, "greedy")
		share := GuestConfig{Name: "late", VRAM: 4 << 20, Tables: 1 << 20, Guaranteed: promised}
		late, err := a.AddGuest(share, &recorder{})
		require.NoError(t, err)
		want := promised
		if promised == 0 {
			want = gf100.Channels / MaxGuests
		}
		for id := range uint8(gf100.Channels) {
			bindChannel(t, greedy, id)
		}
		require.Equal(t, gf100.Channels-want, len(greedy.bound()))
		for id := range uint8(want + 1) {
			bindChannel(t, late, id)
		}
		require.Equal(t, want, len(late.bound()))
		require.NotZero(t, greedy.stats.OverQuota.Load())

		share.Name, share.Guaranteed = "more", gf100.Channels-want-gf100.Channels/MaxGuests+1
		_, err = a.AddGuest(share, &recorder{})
		require.ErrorContains(t, err, fmt.Sprintf("guest more: %d guaranteed channels: only %d of the card's 128", share.Guaranteed, share.Guaranteed-1))
		share.Channels = 3
		_, err = a.AddGuest(share, &recorder{})
		require.ErrorContains(t, err, "must be 1 to 3")
	}
}

// TestGuaranteesAreKeptForOthers: a guest that has its guaranteed channels gets none of those that
// are guaranteed to a guest that has not bound any yet.
func TestGuaranteesAreKeptForOthers(t *testing.T) {
	a, _ := newAgg(t, Options{})
	greedy, _ := addGuest(t, a, "greedy")
	second, _ := addGuest(t, a, "second")
	third, _ := addGuest(t, a, "third")
	const each = gf100.Channels / MaxGuests
	for id := range uint8(gf100.Channels) {
		bindChannel(t, greedy, id)
	}
	for _, g := range []*Guest{second, third} {
		for id := range uint8(each + 1) {
			bindChannel(t, g, id)
		}
	}
	require.Equal(t, [3]int{gf100.Channels - 2*each, each, each}, [3]int{len(greedy.bound()), len(second.bound()), len(third.bound())})
}

func TestQuota(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g, err := a.AddGuest(GuestConfig{Name: "few", VRAM: 4 << 20, Channels: 2, Tables: 1 << 20}, &recorder{})
	require.NoError(t, err)
	for id := range uint8(4) {
		bindChannel(t, g, id)
	}
	require.Equal(t, 2, len(g.bound()))
	require.Equal(t, uint64(2), g.stats.OverQuota.Load())
}

// Memory that changes hands is clean.
func TestScrubBeforeTheNextOwner(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	e := g.Extents()[0]
	for i := range f.vram[e.Card : e.Card+e.Size] {
		f.vram[e.Card+uint64(i)] = 0xaa
	}
	require.NoError(t, g.Remove())
	next, _ := addGuest(t, a, "b")
	require.Equal(t, e, next.Extents()[0])
	require.NotContains(t, string(f.vram[e.Card:e.Card+e.Size]), "\xaa")
	f.vram[e.Card+5] = 1
	require.NoError(t, next.Reset())
	require.Zero(t, f.vram[e.Card+5])
}
