package isolation

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/devmodel/guest/hostile"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/options"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

// strangeKind marks entries of the attacker that pass a hole.
const strangeKind = 0x77

// unbounded is a card whose shadow tables lack a bound check: marked entries name the
// address that the attacker chose.
type unbounded struct {
	*soft.Card
	format *shadowpt.Format
	kind   uint8      // marks
	tables []card.Run // of the attacker's shadows; set before place
	target atomic.Uint64
}

func (u *unbounded) WriteVRAM(addr uint64, p []byte) bool {
	if target := u.target.Load(); target != 0 && len(p)%8 == 0 && slices.ContainsFunc(u.tables, func(r card.Run) bool { return addr >= r.Addr && addr < r.Addr+r.Size }) {
		p = slices.Clone(p)
		for i := 0; i < len(p); i += 8 {
			if e := u.format.DecodePTE(binary.LittleEndian.Uint64(p[i:])); e.Valid && e.Kind == u.kind {
				e.Addr = target
				binary.LittleEndian.PutUint64(p[i:], u.format.EncodePTE(e))
			}
		}
	}
	return u.Card.WriteVRAM(addr, p)
}

// hoarder is a card that does not scrub.
type hoarder struct{ *soft.Card }

func (hoarder) ScrubVRAM(uint64, uint64) error { return nil }

// shifted is a card on which the attacker's windows reach another guest's memory.
type shifted struct {
	*soft.Card
	from, to atomic.Uint64
}

func (s *shifted) shift(addr uint64) uint64 {
	if from := s.from.Load(); from != 0 && addr >= from && addr < from+64<<10 {
		addr += s.to.Load() - from
	}
	return addr
}

func (s *shifted) ReadVRAM(addr uint64, p []byte) bool { return s.Card.ReadVRAM(s.shift(addr), p) }

func (s *shifted) WriteVRAM(addr uint64, p []byte) bool { return s.Card.WriteVRAM(s.shift(addr), p) }

func planted(t *testing.T, c options.Combination, plant func(*soft.Card) card.Registers) *Ward {
	w := NewWard(t, c, testserver.SharedConfig{Plant: plant})
	t.Cleanup(func() { _ = w.Close() }) // the victim may have noticed, too
	return w
}

// TestGateFindsHoles plants holes in the card: the gate has to find each. In the gate each
// hole meets one combination, in the release suite every pair of options.
func TestGateFindsHoles(t *testing.T) {
	list := options.Few()
	for i, h := range holes {
		for n, c := range list {
			if scale.Release() || n == i%len(list) {
				t.Run(h.what+", "+c.String(), func(t *testing.T) {
					t.Parallel()
					h.find(t, c)
				})
			}
		}
	}
}

var holes = append([]hole{
	{"a translation without a bound, read", func(t *testing.T, c options.Combination) {
		u := &unbounded{format: shadowpt.Fermi, kind: strangeKind}
		w := planted(t, c, func(c *soft.Card) card.Registers { u.Card = c; return u })
		u.tables = w.Endpoint.Guest.Tables()
		u.target.Store(w.bystander.Extents()[0].Card)
		require.Empty(t, w.Violations())
		mine := hostile.Value{Base: hostile.Mine}
		require.NoError(t, w.Attacker.Do(hostile.Action{Kind: hostile.Entry, V: mine, Bits: strangeKind << 36, Engine: guest.CE0}))
		require.Eventually(t, func() bool { return len(w.Violations()) > 0 }, wait, tick)
	}},
	{"a translation without a bound, written", func(t *testing.T, c options.Combination) {
		u := &unbounded{format: shadowpt.Fermi, kind: strangeKind}
		w := planted(t, c, func(c *soft.Card) card.Registers { u.Card = c; return u })
		u.tables = w.Endpoint.Guest.Tables()
		u.target.Store(w.free[0].Addr)
		require.NoError(t, w.Attacker.Do(hostile.Action{Kind: hostile.Entry, V: hostile.Value{Base: hostile.Mine}, Bits: strangeKind << 36, Engine: guest.M2MF, Write: true}))
		require.Eventually(t, func() bool { return strings.Contains(strings.Join(w.Violations(), "; "), "unowned memory changed") }, wait, tick)
	}},
	{"memory of a former owner", func(t *testing.T, c options.Combination) {
		w := planted(t, c, func(c *soft.Card) card.Registers { return hoarder{c} })
		require.NotEmpty(t, w.Violations())
	}},
}, windows()...)

// hole is something that a card does wrong, and how it is found.
type hole struct {
	what string
	find func(t *testing.T, c options.Combination)
}

// windows are holes of which the attacker's windows are the way in.
func windows() (list []hole) {
	for _, into := range []struct {
		what   string
		write  bool
		target func(*Ward) uint64
	}{
		{"the bystander's memory", false, func(w *Ward) uint64 { return w.bystander.Extents()[0].Card }},
		{"the victim's memory", false, func(w *Ward) uint64 {
			return part(w.GPUs[1].Guest.Extents(), w.victim.untouched.Addr, 1)[0].Addr
		}},
		{"the bystander's page tables", false, func(w *Ward) uint64 { return w.bystander.Tables()[0].Addr }},
		{"unowned memory", true, func(w *Ward) uint64 { return w.free[0].Addr }},
		{"the victim's memory", true, func(w *Ward) uint64 {
			return part(w.GPUs[1].Guest.Extents(), w.victim.untouched.Addr, 1)[0].Addr
		}},
		{"the victim's page tables", true, func(w *Ward) uint64 {
			last := w.GPUs[1].Guest.Tables()
			return last[len(last)-1].Addr + last[len(last)-1].Size - 64<<10
		}},
		{"the aggregator's own tables", true, func(w *Ward) uint64 { return w.Driver.Fixed()[0].Addr }},
		{"the poll area", true, func(w *Ward) uint64 { return w.Driver.PollArea().Addr + w.Driver.PollArea().Size - gf100.USERDSize }},
		{"the runlist", true, func(w *Ward) uint64 { return w.Driver.Runlists()[1].Addr }},
	} {
		list = append(list, hole{fmt.Sprintf("a window into %s, written %t", into.what, into.write), func(t *testing.T, c options.Combination) {
			s := &shifted{}
			w := planted(t, c, func(c *soft.Card) card.Registers { s.Card = c; return s })
			require.Empty(t, w.Violations())
			s.to.Store(into.target(w))
			s.from.Store(w.Endpoint.Guest.Extents()[0].Card)
			require.NoError(t, w.Attacker.Do(hostile.Action{Kind: hostile.Window, W: hostile.Value{Or: 1}, Write: into.write}))
			require.NoError(t, w.Attacker.Guest.Sync())
			w.Attacker.Guest.Raw().Reg(0) // posted writes have landed
			s.from.Store(0)
			found := strings.Join(w.Violations(), "; ")
			if into.write {
				require.Contains(t, found, into.what+" changed")
			} else {
				require.Contains(t, found, "secret in what was read")
			}
		}})
	}
	return list
}
