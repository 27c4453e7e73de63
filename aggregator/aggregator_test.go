package aggregator

import (
	"cmp"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

func TestInvalidOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Guests: MaxGuests + 1}, "aggregator: limits.guests: 33: must be 1 to 32"},
		{Options{Guests: -1}, "aggregator: limits.guests: -1: must be 1 to 32"},
		{Options{TableRate: -1}, "aggregator: limits.table-rate: -1: must be above 0"},
	} {
		_, err := newAggWith(t, fakecard.New(1<<20), patience, c.o)
		require.EqualError(t, err, c.want)
	}
}

// TestGuestsShareTheBus: as many guests as may be are taken. Each reaches its own part of the card's bus
// addresses, to the last byte, and can count on an even share of the channels.
func TestGuestsShareTheBus(t *testing.T) {
	for guests, window := range map[int]uint64{0: 32 << 30, 1: 1 << 40, 3: 256 << 30, 32: 32 << 30} {
		a, _ := newAgg(t, Options{Guests: guests})
		guests = cmp.Or(guests, 32)
		for i := range uint64(guests) {
			g, _ := addGuestIn(t, a, GuestConfig{Name: fmt.Sprint(i), VRAM: 1 << 20, Tables: 1 << 20})
			require.Equal(t, gf100.Channels/guests, g.limits.Guaranteed)
			for _, addr := range []uint64{0, window - 8} {
				require.NoError(t, g.MapDMA(addr, card.Mapping{Mem: make([]byte, 8), Write: true}))
				at, ok := g.mem.Translate(shadowpt.SystemCoherent, addr, 8, true)
				require.True(t, ok)
				require.Equal(t, i*window+addr, at)
			}
			for _, addr := range []uint64{window - 7, window, 1<<64 - 8} {
				_, ok := g.mem.Translate(shadowpt.SystemCoherent, addr, 8, false)
				require.False(t, ok)
			}
		}
		_, err := addFace(a, GuestConfig{Name: "more", VRAM: 1 << 20, Tables: 1 << 20}, newRecorder())
		require.EqualError(t, err, fmt.Sprintf("aggregator: guest more: limit of %d guests reached", guests))
	}
}

// TestQuota: a guest has no more channels than its configuration says, and makes them no faster than the
// scheduler allows. A channel that is refused takes nothing of the card.
func TestQuota(t *testing.T) {
	var now atomic.Int64
	cfg := sched.Default()
	cfg.Limits.Creations = 6 // a channel and its process each
	a := newAggOn(t, &failingCard{fakeCard: fakecard.New(fakeVRAM)}, patience,
		Options{Scheduler: &cfg, Clock: func() time.Duration { return time.Duration(now.Load()) }})
	few, fast := addGuestWith(t, a, GuestConfig{Channels: 2}), addGuestWith(t, a, GuestConfig{})
	bound := func(g *Guest) (list []uint8) {
		for id := range uint8(4) {
			bindChannelAt(t, g, id, dirAt+uint64(id)*0x10000)
			if g.cardChannel(id) != nil {
				list = append(list, id)
			}
		}
		require.Len(t, g.channels.CardChannels(), len(list))
		return list
	}
	require.Equal(t, []uint8{0, 1}, bound(few))
	require.Equal(t, uint64(2), few.stats.Channels.OverQuota.Load())
	require.Equal(t, []uint8{0, 1, 2}, bound(fast))
	require.Equal(t, uint64(1), a.ScheduleCounts().Storms)
	now.Add(int64(time.Second))
	bindChannelAt(t, fast, 3, dirAt+0x30000)
	require.NotNil(t, fast.cardChannel(3))
	_, err := addFace(a, GuestConfig{Name: "more", VRAM: 4 << 20, Tables: 1 << 20, Channels: 3, Guaranteed: 4}, newRecorder())
	require.ErrorContains(t, err, "must be 1 to 3")
	_, err = addFace(a, GuestConfig{Name: "more", VRAM: 4 << 20, Tables: 64 << 10}, newRecorder())
	require.ErrorContains(t, err, "one address space needs 320 KiB")
}

// TestScrubBeforeTheNextOwner: memory that changes hands is clean.
func TestScrubBeforeTheNextOwner(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	e := g.Extents()[0]
	for i := range f.Bytes[e.Card : e.Card+e.Size] {
		f.Bytes[e.Card+uint64(i)] = 0xaa
	}
	require.NoError(t, g.Remove())
	require.Equal(t, make([]byte, e.Size), f.Bytes[e.Card:e.Card+e.Size])
	next, _ := addGuest(t, a, "b")
	require.Equal(t, e, next.Extents()[0])
	f.Bytes[e.Card+5] = 1
	require.NoError(t, next.Reset(false))
	require.Zero(t, f.Bytes[e.Card+5])
}
