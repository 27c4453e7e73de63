package aggregator

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

func TestInvalidOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Guests: MaxGuests + 1}, "aggregator: limits.guests: 33: must be 1 to 32"},
		{Options{Guests: -1}, "aggregator: limits.guests: -1: must be 1 to 32"},
		{Options{CardTimeout: -1}, "aggregator: limits.card-timeout: -1: must be above 0"},
		{Options{InterruptBurst: -2}, "aggregator: limits.interrupt-burst: -2: must be above 0"},
		{Options{InvalidateDirs: -3}, "aggregator: limits.invalidate-dirs: -3: must be above 0"},
	} {
		_, err := NewWith(newFake(fakeVRAM), c.o)
		require.EqualError(t, err, c.want)
	}
}

// everywhere is guest memory that has an answer at each address, and notes where it
// was asked.
type everywhere struct{ at *atomic.Uint64 }

func (everywhere) Acquire() {}
func (everywhere) Release() {}
func (e everywhere) Slice(addr uint64, n int, _ bool) []byte {
	e.at.Store(addr)
	return make([]byte, n)
}

// With the largest number of guests, each reaches its part of the card's bus addresses to
// the last byte and no other's, and has an even share of the channels guaranteed.
func TestGuestsShareTheBus(t *testing.T) {
	for guests, window := range map[int]uint64{0: 32 << 30, 1: 1 << 40, 2: 512 << 30, 3: 256 << 30, 8: 128 << 30, 9: 64 << 30, 32: 32 << 30} {
		a, _ := newAgg(t, Options{Guests: guests})
		if guests == 0 {
			guests = 32
		}
		require.Equal(t, window, a.bus.window())
		var asked [MaxGuests]atomic.Uint64
		var list []*Guest
		for i := range guests {
			g, err := a.AddGuest(GuestConfig{Name: fmt.Sprint(i), VRAM: 1 << 20, Tables: 1 << 20}, &recorder{})
			require.NoError(t, err)
			require.Equal(t, gf100.Channels/guests, g.limits.Guaranteed)
			g.AttachMemory(everywhere{&asked[i]})
			list = append(list, g)
		}
		_, err := a.AddGuest(GuestConfig{Name: "more", VRAM: 1 << 20, Tables: 1 << 20}, &recorder{})
		require.EqualError(t, err, fmt.Sprintf("aggregator: guest more: limit of %d guests reached", guests))
		for i, g := range list {
			for _, addr := range []uint64{0, window / 2, window - 8} {
				at, ok := g.Translate(shadowpt.SystemCoherent, addr, 8, true)
				require.True(t, ok)
				require.Less(t, at, uint64(1)<<40)
				require.Equal(t, uint64(i)*window+addr, at)
				require.NotNil(t, a.bus.Slice(at, 8, true))
				require.Equal(t, addr, asked[i].Load())
			}
			for _, addr := range []uint64{window - 7, window, 1 << 40, 1<<64 - 8} {
				_, ok := g.Translate(shadowpt.SystemCoherent, addr, 8, false)
				require.False(t, ok)
			}
			require.Nil(t, a.bus.Slice(uint64(i+1)*window-7, 8, true), "it would end in the next one's")
		}
	}
}

// The bus decodes an address as a division does.
func TestBusEqualsDivision(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b bus
		b.init(rapid.IntRange(1, MaxGuests).Draw(t, "guests"))
		addr := b.window()*rapid.Uint64Range(0, 2*MaxGuests).Draw(t, "window") + rapid.Uint64Range(0, b.window()-1).Draw(t, "own")
		n := rapid.Uint64().Draw(t, "n") >> rapid.IntRange(0, 63).Draw(t, "shift")
		index, guestAddr, ok := b.of(addr, n)
		require.Equal(t, addr/b.window(), index)
		require.Equal(t, addr%b.window(), guestAddr)
		if ok {
			require.Less(t, index, uint64(MaxGuests))
			require.Equal(t, addr, b.at(int(index), guestAddr))
		}
		fits := index < MaxGuests && (n == 0 || addr+n-1 >= addr && (addr+n-1)/b.window() == index)
		require.Equal(t, fits, ok)
	})
}

// asking is a card that always has something to say.
type asking struct {
	*fakeCard
	asked *atomic.Int64
}

func (a asking) ReadBAR(bar int, off uint64, p []byte) {
	if uint32(off) == regPMCIntr {
		a.asked.Add(1)
		binary.LittleEndian.PutUint32(p, intrCE0)
		return
	}
	a.fakeCard.ReadBAR(bar, off, p)
}

// A card that does not stop to ask is left alone for a while after so many looks.
func TestInterruptBurst(t *testing.T) {
	var asked atomic.Int64
	f := newFake(fakeVRAM)
	a, err := NewWith(asking{f, &asked}, Options{InterruptBurst: 3, InterruptPause: time.Hour})
	require.NoError(t, err)
	f.host.Interrupt(card.Line{Level: true, Edge: true})
	require.Eventually(t, func() bool { return asked.Load() >= 3 }, patience, tick)
	require.NoError(t, a.Close()) // in the pause, which it does not wait for
	require.Equal(t, int64(3), asked.Load())

	asked.Store(0)
	a, err = NewWith(asking{f, &asked}, Options{InterruptBurst: 3, InterruptPause: time.Nanosecond})
	require.NoError(t, err)
	f.host.Interrupt(card.Line{Level: true, Edge: true})
	require.Eventually(t, func() bool { return asked.Load() > 6 }, patience, tick)
	require.NoError(t, a.Close())
}
