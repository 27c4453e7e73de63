package shadowpt_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// tables is a memory of table entries, dense enough that neighbours matter.
type tables map[uint64]uint64

func (m tables) Read64(_ shadowpt.Target, addr uint64) (uint64, bool) { return m[addr], true }

// grouped is tables that can be read a group at a time.
type grouped struct{ tables }

func (m grouped) ReadGroup(_ shadowpt.Target, addr uint64, q []uint64) bool {
	for i := range q {
		q[i] = m.tables[addr+uint64(i)*8]
	}
	return true
}

const (
	tlbDir   = 0x100000
	tlbSmall = 0x200000
	tlbBig   = 0x300000
)

// drawTables makes one directory entry with a few groups of pages: some contiguous, some
// scattered, some with holes, some under a big page.
func drawTables(t *rapid.T) (tables, shadowpt.Space) {
	m := tables{}
	m[tlbDir] = shadowpt.PDE{
		Small: shadowpt.Table{Present: true, Addr: tlbSmall},
		Big:   shadowpt.Table{Present: rapid.Bool().Draw(t, "big table"), Addr: tlbBig},
	}.Encode()
	for g := range uint64(4) {
		base := rapid.Uint64Range(0, 1<<20).Draw(t, "base") << shadowpt.SmallShift
		target := rapid.SampledFrom([]shadowpt.Target{shadowpt.VRAM, shadowpt.SystemNonCoherent}).Draw(t, "target")
		broken := rapid.IntRange(-1, shadowpt.GroupEntries-1).Draw(t, "broken")
		how := rapid.IntRange(0, 2).Draw(t, "how")
		for i := range uint64(shadowpt.GroupEntries) {
			pte := shadowpt.PTE{Valid: true, Addr: base + i*shadowpt.SmallPage, Target: target}
			if int(i) == broken {
				switch how {
				case 0:
					pte.Valid = false
				case 1:
					pte.Addr ^= 1 << 20
				case 2:
					pte.ReadOnly = true
				}
			}
			m[tlbSmall+(g*shadowpt.GroupEntries+i)*8] = pte.Encode()
		}
		if rapid.IntRange(0, 3).Draw(t, "big") == 0 {
			m[tlbBig+g*8] = shadowpt.PTE{Valid: true, Addr: base &^ (shadowpt.BigPage - 1), Target: target}.Encode()
		}
	}
	limit := rapid.Uint64Range(0, 4*shadowpt.BigPage).Draw(t, "limit") | 0xfff
	return m, shadowpt.Space{Dir: tlbDir, Limit: limit}
}

// TestGroupsAgainstWalks holds a TLB that looks up whole groups against the walk
// of each address.
func TestGroupsAgainstWalks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m, space := drawTables(t)
		var tlb shadowpt.TLB
		tlb.Bind(shadowpt.Fermi, space)
		for range rapid.IntRange(1, 200).Draw(t, "look-ups") {
			va := rapid.Uint64Range(0, 5*shadowpt.BigPage).Draw(t, "va")
			page, reason, ok := shadowpt.Walk(m, space, va)
			pte, end, gotReason, gotOK := tlb.Lookup(grouped{m}, va)
			if ok != gotOK || reason != gotReason {
				t.Fatalf("va %#x: walk %v %v, TLB %v %v", va, ok, reason, gotOK, gotReason)
			}
			if !ok {
				continue
			}
			want := page.PTE
			want.Addr += va - page.VA
			if pte != want {
				t.Fatalf("va %#x: walk %+v, TLB %+v", va, want, pte)
			}
			if end <= va || end > va&^(shadowpt.BigPage-1)+shadowpt.BigPage {
				t.Fatalf("va %#x: page ends at %#x", va, end)
			}
			// All that is said to lie in the page must be there.
			last, _, lastOK := shadowpt.Walk(m, space, end-1)
			if !lastOK || last.Addr+(end-1-last.VA) != pte.Addr+(end-1-va) || last.Target != pte.Target || last.ReadOnly != pte.ReadOnly {
				t.Fatalf("va %#x to %#x: the last byte is elsewhere", va, end)
			}
		}
	})
}

// TestGroupIsOneMiss counts walks: the pages of a group cost one.
func TestGroupIsOneMiss(t *testing.T) {
	m := tables{tlbDir: shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: tlbSmall}}.Encode()}
	for i := range uint64(shadowpt.GroupEntries) {
		m[tlbSmall+i*8] = shadowpt.PTE{Valid: true, Addr: (i * 7 % 32) << 20}.Encode()
	}
	walks := func(mem shadowpt.Memory) uint64 {
		var tlb shadowpt.TLB
		tlb.Bind(shadowpt.Fermi, shadowpt.Space{Dir: tlbDir, Limit: shadowpt.VASize - 1})
		for i := range uint64(shadowpt.GroupEntries) {
			_, _, _, ok := tlb.Lookup(mem, i*shadowpt.SmallPage)
			require.True(t, ok)
		}
		return tlb.Misses
	}
	require.EqualValues(t, shadowpt.GroupEntries, walks(m))
	require.EqualValues(t, 1, walks(grouped{m}))
}
