package windows

import (
	"encoding/binary"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/passthrough"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/tests/rig"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// client maps what it is offered.
var client = guest.Config{RAM: 4 << 20, Map: true}

// TestMovesLoseNoByte: while pages move to and from BAR3, a processor stores into them
// through BAR1 and engines through their tables, each byte once. In the end every byte
// is there.
func TestMovesLoseNoByte(t *testing.T) {
	const (
		pages, both  = 48, 24 // both are in BAR1 too; the others move in and out together
		half, chunk  = page / 2, 64
		toVA, fromVA = 0x1000_0000, 0x2000_0000
	)
	s, err := testserver.New(testserver.Config{
		Card: soft.Config{VRAM: vramSize}, Windows: passthrough.Config{Map: aperture.MapBAR1 | aperture.MapBAR3},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	g := rig.Attach(t, s.Socket(), client)
	from := g.BufferRAM(fromVA, pages*half)
	var to [both + 1]*guest.Buffer
	var mem [both][]byte
	for i := range to {
		size := uint64(page)
		if i == both {
			size = (pages - both) * page
		}
		to[i] = g.Buffer(toVA+uint64(i)*page, size, guest.Small)
		if i < both {
			at, err := to[i].BAR1()
			require.NoError(t, err)
			mem[i] = g.Mapped(1, at)[:page]
		}
	}
	ch := g.Channel(1, guest.ChannelConfig{RingLog2: 12, Push: 256 << 10})

	stats := s.Device.Shown()
	var hide [both + 1]func() error // of the buffers that are in BAR3
	toggle := func(i int) {
		if hide[i] == nil {
			_, hide[i], err = to[i].BAR3()
			require.NoError(t, err)
			return
		}
		require.NoError(t, hide[i]())
		hide[i] = nil
	}
	for round := range uint32(scale.Of(4, 12)) {
		want := make([]byte, pages*page)
		for i := 0; i < len(want); i += 4 {
			if i < both*page || i%page < half {
				binary.LittleEndian.PutUint32(want[i:], round<<24|uint32(i)+1)
			}
		}
		for i := range pages {
			copy(from.Data[i*half:], want[i*page:][:half])
		}
		var done atomic.Bool
		go func() { // the processor: the second half of each page
			defer done.Store(true)
			for _, k := range rand.Perm(both * half / chunk) {
				at := half + k*chunk%half
				for i := at; i < at+chunk; i += 4 {
					binary.LittleEndian.PutUint32(mem[k*chunk/half][i:], binary.LittleEndian.Uint32(want[k*chunk/half*page+i:]))
				}
				for range 4000 { // a processor that does something else
					done.Load()
				}
			}
		}()
		before := stats.PagesMoved.Load()
		for order := rand.Perm(pages * half / chunk); !done.Load() || len(order) > 0; { // the engines: the first half
			for _, k := range order[:min(16, len(order))] {
				off := uint64(k*chunk/half*page + k*chunk%half)
				require.NoError(t, ch.Copy(guest.CE0, toVA+off, fromVA+uint64(k*chunk), chunk))
			}
			order = order[min(16, len(order)):]
			for range 4 {
				toggle(rand.IntN(both))
			}
			toggle(both)
		}
		require.NoError(t, ch.Finish())
		g.Raw().Reg(regFlush)
		for i, b := range to {
			got, at := make([]byte, b.Size), i*page
			require.True(t, s.Card.ReadVRAM(b.Addr, got))
			require.Equal(t, want[at:][:b.Size], got, "round %d, buffer %d, in memory", round, i)
			if i < both {
				require.Equal(t, want[at:][:page], append([]byte(nil), mem[i]...), "round %d, in the window", round)
			}
		}
		require.Greater(t, stats.PagesMoved.Load(), before, "pages moved during the copies")
	}
	require.Zero(t, stats.TooFast.Load())
}

// slowCard is a card that is sometimes slow at writes of its memory, so that other events
// fall between any two steps of a bind.
type slowCard struct{ *soft.Card }

func (s slowCard) WriteVRAM(addr uint64, p []byte) bool {
	if rand.IntN(8) == 0 {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
	return s.Card.WriteVRAM(addr, p)
}

// TestRebindsLoseNoByte: a guest's channel has work and is repeatedly unbound and bound
// again, while the pages that it copies to move into BAR3 and out, and processors store
// into the other half of each. In the end every byte is there. TestMovesLoseNoByte
// tests the same in pass-through, and TestNoChannelBeginsWhilePagesMove of package aggregator
// tests each step.
func TestRebindsLoseNoByte(t *testing.T) {
	for _, chip := range rig.Chips {
		t.Run(chip.Device.Name(), func(t *testing.T) {
			cfg := testserver.SharedConfig{Card: soft.Config{VRAM: 5 << 30}, Plant: func(c *soft.Card) card.Registers { return slowCard{c} }}
			e := rig.New(t, cfg).AddChip(chip, aggregator.GuestConfig{Name: "a", Map: aperture.MapBAR1 | aperture.MapBAR3})
			rebinds(t, chip.Attach(t, e.Socket, client), e.Guest)
		})
	}
}

func rebinds(t *testing.T, d rig.Driver, gpu *aggregator.Guest) {
	const (
		pages, half = 64, page / 2
		pieces      = 4 // of each half
	)
	rounds := scale.Of(4, 20)
	to, err := d.MapVRAM(pages * page)
	require.NoError(t, err)
	mem, err := d.Window(to)
	require.NoError(t, err)
	from, ram, err := d.MapRAM(pages * page)
	require.NoError(t, err)
	ch, err := d.Open(1)
	require.NoError(t, err)
	require.NoError(t, ch.Finish())

	stats := gpu.Stats()
	moved, binds := stats.Windows.Mapped.PagesMoved.Load(), stats.Channels.Binds.Load()
	want := make([]byte, pages*page)
	for round := range uint32(rounds) {
		for i := 0; i < len(want); i += 4 {
			binary.LittleEndian.PutUint32(want[i:], (round+1)<<24|uint32(i)+1)
		}
		copy(ram, want)
		done := make(chan struct{})
		go func() { // a processor: the second half of each page
			defer close(done)
			for i := 0; i < len(want); i += 4 {
				if i%page >= half {
					binary.LittleEndian.PutUint32(mem[i:], binary.LittleEndian.Uint32(want[i:]))
				}
				if i%1024 == 0 {
					time.Sleep(10 * time.Microsecond)
				}
			}
		}()
		order := rand.Perm(pages * pieces)
		for await := false; len(order) > 0; await = !await {
			before := stats.Channels.Binds.Load()
			// It is unbound with work under way, gets more work, and is bound while pages
			// move.
			require.NoError(t, ch.Unbind())
			for _, k := range order[:min(64, len(order))] {
				off := uint64(k/pieces*page + k%pieces*half/pieces)
				require.NoError(t, ch.Copy(to+off, from+off, half/pieces))
			}
			order = order[min(64, len(order)):]
			bound, err := ch.Bind()
			require.NoError(t, err)
			require.NoError(t, d.Detour(to))
			require.NoError(t, bound())
			// Every other bind is waited for: requests before the end of an earlier one
			// coalesce with it.
			if await {
				require.Eventually(t, func() bool { return stats.Channels.Binds.Load() > before }, patience, time.Millisecond)
			}
		}
		<-done
		require.NoError(t, ch.Finish())
		require.Equal(t, want, append([]byte(nil), mem...), "round %d", round)
	}
	require.GreaterOrEqual(t, stats.Windows.Mapped.PagesMoved.Load()-moved, uint64(rounds*pages))
	require.GreaterOrEqual(t, stats.Channels.Binds.Load()-binds, uint64(2*rounds))
	require.Zero(t, stats.Windows.Mapped.TooFast.Load())
	require.Empty(t, gpu.QuarantineReason())
}
