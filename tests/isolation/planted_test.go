package isolation

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/guest"
	"github.com/umbra-gpu/umbra/tests/guest/hostile"
)

// strangeKind marks entries of the attacker's that a hole lets through.
const strangeKind = 0x77

// unbounded is a card on which shadow tables come out as if a translation had
// forgotten its bound: marked entries name the place that the attacker chose.
type unbounded struct {
	card.Card
	place atomic.Uint64
}

func (u *unbounded) WriteVRAM(addr uint64, p []byte) bool {
	if len(p) == shadowpt.SmallTableSize {
		for ; len(p) > 0; p, addr = p[8:], addr+8 {
			e := shadowpt.DecodePTE(binary.LittleEndian.Uint64(p))
			if e.Valid && e.Kind == strangeKind {
				e.Addr = u.place.Load()
			}
			u.Card.WriteVRAM(addr, binary.LittleEndian.AppendUint64(nil, e.Encode()))
		}
		return true
	}
	return u.Card.WriteVRAM(addr, p)
}

// hoarder is a card that forgets to scrub.
type hoarder struct{ card.Card }

func (hoarder) ScrubVRAM(uint64, uint64) error { return nil }

// shifted is a card on which what the attacker reads through its windows comes
// from somebody else's memory.
type shifted struct {
	card.Card
	from, to atomic.Uint64
}

func (s *shifted) ReadVRAM(addr uint64, p []byte) bool {
	if from := s.from.Load(); from != 0 && addr >= from && addr < from+1<<20 {
		addr += s.to.Load() - from
	}
	return s.Card.ReadVRAM(addr, p)
}

func planted(t *testing.T, plant func(card.Card) card.Card) *Ward {
	w, err := NewWard(plant)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() }) // the victim may have noticed, too
	return w
}

// TestGateFindsHoles plants holes: the gate must find each.
func TestGateFindsHoles(t *testing.T) {
	t.Run("a translation without a bound, read", func(t *testing.T) {
		u := &unbounded{}
		w := planted(t, func(c card.Card) card.Card { u.Card = c; return u })
		u.place.Store(w.bystander.Extents()[0].Card)
		require.Empty(t, w.Violations())
		mine := hostile.Value{Base: hostile.Mine}
		require.NoError(t, w.Attacker.Do(hostile.Action{Kind: hostile.Entry, V: mine, Bits: strangeKind << 36, Engine: guest.CE0}))
		require.Eventually(t, func() bool { return len(w.Violations()) > 0 }, wait, tick)
	})
	t.Run("a translation without a bound, written", func(t *testing.T) {
		u := &unbounded{}
		w := planted(t, func(c card.Card) card.Card { u.Card = c; return u })
		u.place.Store(w.free[0].Card)
		require.NoError(t, w.Attacker.Do(hostile.Action{Kind: hostile.Entry, V: hostile.Value{Base: hostile.Mine}, Bits: strangeKind << 36, Engine: guest.M2MF, Write: true}))
		changed := func(list []string) bool {
			for _, v := range list {
				if v[:14] == "unowned memory" {
					return true
				}
			}
			return false
		}
		require.Eventually(t, func() bool { return changed(w.Violations()) }, wait, tick)
	})
	t.Run("memory of a former owner", func(t *testing.T) {
		w := planted(t, func(c card.Card) card.Card { return hoarder{c} })
		require.NotEmpty(t, w.Violations())
	})
	t.Run("a window into others' memory", func(t *testing.T) {
		s := &shifted{}
		w := planted(t, func(c card.Card) card.Card { s.Card = c; return s })
		require.Empty(t, w.Violations())
		s.to.Store(w.bystander.Extents()[0].Card)
		s.from.Store(w.Seat.Guest.Extents()[0].Card)
		require.NoError(t, w.Attacker.Do(hostile.Action{Kind: hostile.Window}))
		require.NotEmpty(t, w.Violations())
	})
}
