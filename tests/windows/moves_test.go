package windows

import (
	"encoding/binary"
	"math/rand/v2"
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

// slowCard is a card that is sometimes slow at writes of its memory, so that other events
// fall between any two steps of a bind.
type slowCard struct{ *soft.Card }

func (s slowCard) WriteVRAM(addr uint64, p []byte) bool {
	if rand.IntN(8) == 0 {
		time.Sleep(time.Duration(rand.IntN(300)) * time.Microsecond)
	}
	return s.Card.WriteVRAM(addr, p)
}

// TestMovesLoseNoByte: a guest's channel copies to pages that move into BAR3 and out, and processors
// store into the other half of each of those that are in BAR1. Every other time the channel of a virtual GPU is taken off
// the card with work under way, and put there again while pages move. In the end every byte is there.
// TestNoChannelBeginsWhilePagesMove of package aggregator tests each step.
func TestMovesLoseNoByte(t *testing.T) {
	const offered = aperture.MapBAR1 | aperture.MapBAR3
	t.Run("pass-through", func(t *testing.T) {
		s, err := testserver.New(testserver.Config{Card: soft.Config{VRAM: vramSize}, Windows: passthrough.Config{Map: offered}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		moves(t, rig.Fermi.Attach(t, s.Socket(), client), s.Device.Shown(), nil)
	})
	for _, chip := range rig.Chips {
		t.Run(chip.Device.Name(), func(t *testing.T) {
			cfg := testserver.SharedConfig{Card: soft.Config{VRAM: 5 << 30}, Plant: func(c *soft.Card) card.Registers { return slowCard{c} }}
			e := rig.New(t, cfg).AddChip(chip, aggregator.GuestConfig{Name: "a", Map: offered})
			stats := e.Guest.Stats()
			rebinds := moves(t, chip.Attach(t, e.Socket, client), &stats.Windows.Mapped, stats.Channels.Binds.Load)
			require.Greater(t, stats.Channels.Binds.Load(), rebinds/2)
			require.Empty(t, e.Guest.QuarantineReason())
		})
	}
}

// moves copies while pages move, and returns how often it put the channel on the card again: never, without
// binds, which counts that.
func moves(t *testing.T, d rig.Driver, shown *aperture.Stats, binds func() uint64) (rebinds uint64) {
	const (
		pages, half = 64, page / 2
		pieces      = 2 // of each half
		size        = pages * page
	)
	var to [2]uint64 // the first one is in BAR1
	var err error
	for i := range to {
		to[i], err = d.MapVRAM(size)
		require.NoError(t, err)
	}
	mem, err := d.Window(to[0])
	require.NoError(t, err)
	from, ram, err := d.MapRAM(size)
	require.NoError(t, err)
	back, came, err := d.MapRAM(size)
	require.NoError(t, err)
	ch, err := d.Open(1)
	require.NoError(t, err)
	require.NoError(t, ch.Finish())

	rounds := scale.Of(4, 20)
	moved := shown.PagesMoved.Load()
	want := make([]byte, size)
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
		for step := 0; len(order) > 0; step++ {
			before, bound, rebind := uint64(0), func() error { return nil }, binds != nil && step%2 == 0
			if rebind {
				before = binds()
				require.NoError(t, ch.Unbind())
			}
			for _, k := range order[:32] {
				off := uint64(k/pieces*page + k%pieces*half/pieces)
				require.NoError(t, ch.Copy(to[0]+off, from+off, half/pieces))
				require.NoError(t, ch.Copy(to[1]+off, from+off, half/pieces))
			}
			order = order[32:]
			if rebind {
				bound, err = ch.Bind()
				require.NoError(t, err)
				rebinds++
			}
			require.NoError(t, d.Detour(to[rand.IntN(2)]))
			require.NoError(t, bound())
			// Every other bind is waited for: requests before the end of an earlier one
			// coalesce with it.
			if step%4 == 0 && before > 0 {
				require.Eventually(t, func() bool { return binds() > before }, patience, time.Millisecond)
			}
		}
		<-done
		require.NoError(t, ch.Copy(back, to[1], size))
		require.NoError(t, ch.Finish())
		require.Equal(t, want, append([]byte(nil), mem...), "round %d", round)
		for i := 0; i < size; i += page {
			require.Equal(t, want[i:][:half], came[i:][:half], "round %d, what is in no window", round)
		}
	}
	require.GreaterOrEqual(t, shown.PagesMoved.Load()-moved, uint64(rounds*pages))
	require.Zero(t, shown.TooFast.Load())
	return rebinds
}
