package shadowpt_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// Entries as nouveau writes them.
func TestKnownEntries(t *testing.T) {
	pde := shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{0x0001fe41_0001fdf1})
	require.Equal(t, shadowpt.PDE{
		Big:   shadowpt.Table{Present: true, Addr: 0x1fdf000},
		Small: shadowpt.Table{Present: true, Addr: 0x1fe4000},
	}, pde)
	require.Equal(t, shadowpt.Table{Present: true, Target: shadowpt.SystemNonCoherent, Addr: 0xfffffff000}, shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{0xfffffff3}).Big)
	require.Equal(t, shadowpt.PDE{}, shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{0}))

	pte := shadowpt.DecodePTE(0x000000fe_00012341)
	require.Equal(t, shadowpt.PTE{Valid: true, Addr: 0x1234000, Kind: 0xf, Target: shadowpt.SystemNonCoherent}, shadowpt.PTE{
		Valid: pte.Valid, Addr: pte.Addr, Kind: pte.Kind, Target: pte.Target,
	}, "fe in bits 39:32: kind f, target 3, volatile 0")
	require.False(t, pte.Volatile)
	for bit, want := range map[uint]shadowpt.PTE{
		0: {Valid: true}, 1: {Supervisor: true}, 2: {ReadOnly: true}, 3: {Encrypted: true}, 32: {Volatile: true},
		4: {Addr: 1 << 12}, 31: {Addr: 1 << 39}, 33: {Target: 1}, 34: {Target: 2}, 36: {Kind: 1}, 43: {Kind: 0x80},
		44: {CompTag: 1}, 60: {CompTag: 1 << 16}, 35: {}, 61: {}, 63: {},
	} {
		require.Equal(t, want, shadowpt.DecodePTE(1<<bit), "bit %d", bit)
	}
}

// Bits 35 and 63:61 of a PTE mean nothing; of a PDE, bits 35:34.
const (
	pteUnused = 1<<35 | 7<<61
	pdeUnused = 3 << 34
)

func TestPTERoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := rapid.Uint64().Draw(t, "entry")
		pte := shadowpt.DecodePTE(q)
		require.Equal(t, q&^pteUnused, pte.Encode())
		require.Equal(t, pte, shadowpt.DecodePTE(pte.Encode()))
	})
}

func TestPDERoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := rapid.Uint64().Draw(t, "entry")
		want := q &^ pdeUnused
		if q&3 == 0 { // no table: its address means nothing
			want &^= 0xfffffff0
		}
		if q>>32&3 == 0 {
			want &= 0xffffffff
		}
		pde := shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{q})
		require.Equal(t, want, pde.Encode())
		require.Equal(t, pde, shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{pde.Encode()}))
	})
}

// asked is a guest that returns the arguments of its calls.
type asked struct {
	plain
	target shadowpt.Target
	addr   uint64
	n      uint64
	write  bool
	answer uint64
	ok     bool
}

func (a *asked) Translate(t shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	a.target, a.addr, a.n, a.write = t, addr, n, write
	return a.answer, a.ok
}

// TestEntryEqualsDecoded: what is asked of an entry, and what becomes of it, is what its fields say.
func TestEntryEqualsDecoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := rapid.Uint64().Draw(t, "entry") | uint64(rapid.IntRange(0, 1).Draw(t, "valid"))
		page := rapid.SampledFrom([]uint64{shadowpt.SmallPage, shadowpt.BigPage}).Draw(t, "page")
		g := &asked{answer: rapid.Uint64Range(0, 1<<46-1).Draw(t, "card") << 12, ok: rapid.Bool().Draw(t, "found")}
		s := shadowpt.NewShadow(g, newPlain(0, 0), shadowpt.NewWork(shadowpt.Fermi, 0, 0), shadowpt.Space{})
		got := s.Entry(q, page)

		p := shadowpt.DecodePTE(q)
		want, foreign := shadowpt.PTE{}, uint64(0)
		if p.Valid {
			require.Equal(t, []any{p.Target, p.Addr, page, !p.ReadOnly}, []any{g.target, g.addr, g.n, g.write})
			if g.ok {
				want = p
				want.Addr, want.CompTag, want.Encrypted = g.answer, 0, false
			} else if page == shadowpt.SmallPage {
				foreign = 1
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, foreign, s.Counts.Foreign)
		system, writes := shadowpt.Fermi.Asked(q)
		require.Equal(t, p.Valid && p.Target.System(), system)
		require.Equal(t, p.Valid && !p.ReadOnly && p.Target == shadowpt.VRAM, writes)
	})
}
