package aggregator

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	devgf100 "github.com/umbra-gpu/umbra/devmodel/gf100"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// fragment leaves free, of the card's memory, one run of private bytes for tables and runs of
// the given sizes that do not touch.
func fragment(t tester, a *Aggregator, private uint64, sizes ...uint64) {
	t.Helper()
	share := func(tables uint64) card.Share {
		s, err := a.gpu.NewShare(card.ShareConfig{Class: gf100.ChannelClass, Tables: tables})
		require.NoError(t, err)
		return s
	}
	alloc := func(s card.Share, n, align uint64) {
		_, err := s.AllocVRAM(n, align)
		require.NoError(t, err)
	}
	keep := share(512 << 10)
	alloc(keep, shadowpt.BigPage, shadowpt.BigPage)
	free := share(private)
	for _, n := range sizes {
		alloc(keep, shadowpt.BigPage, shadowpt.BigPage)
		alloc(free, n, shadowpt.BigPage)
	}
	alloc(keep, a.Free(), vram.PageSize)
	free.Close(false)
}

// entry is one entry of a shadow.
type entry struct {
	slot, index uint64 // in the directory, and in the table
	big         bool
	pde         shadowpt.PDE
	table       shadowpt.Table
	bits        uint64
}

// eachEntry calls f for the entries of a shadow that are not zero, and for the first of each table.
func eachEntry(mem []byte, dir uint64, f func(entry)) {
	for i := range uint64(shadowpt.DirEntries) {
		pde := shadowpt.Fermi.Dirs[0].Decode(shadowpt.Words{binary.LittleEndian.Uint64(mem[dir+i*8:])})
		for _, t := range []struct {
			shadowpt.Table
			n   uint64
			big bool
		}{{pde.Big, shadowpt.BigEntries, true}, {pde.Small, shadowpt.SmallEntries, false}} {
			if t.Present && bytes.Equal(mem[t.Addr:][:t.n*8], make([]byte, t.n*8)) {
				t.n = 1
			}
			for k := uint64(0); t.Present && k < t.n; k++ {
				if q := binary.LittleEndian.Uint64(mem[t.Addr+k*8:]); q != 0 || k == 0 {
					f(entry{i, k, t.big, pde, t.Table, q})
				}
			}
		}
	}
}

// checkShadow fails unless every entry of the shadow at dir names memory of the guest: tables in
// its share of the card, pages inside one extent of its VRAM or inside its mapped memory, with the
// permission that they have there.
func checkShadow(t require.TestingT, g *Guest, mem []byte, dir uint64) {
	inside := func(runs []card.Run, at, n uint64) bool {
		return slices.ContainsFunc(runs, func(r card.Run) bool { return at >= r.Addr && at+n <= r.Addr+r.Size })
	}
	var extents []card.Run
	for _, e := range g.Extents() {
		extents = append(extents, card.Run{Addr: e.Card, Size: e.Size})
	}
	window := g.agg.bus.Size()
	require.True(t, inside(g.share.Memory(), dir, shadowpt.DirSize))
	eachEntry(mem, dir, func(e entry) {
		entries, page := uint64(shadowpt.SmallEntries), uint64(shadowpt.SmallPage)
		if e.big {
			entries, page = shadowpt.BigEntries, shadowpt.BigPage
		}
		require.True(t, e.table.Target == shadowpt.VRAM && inside(g.share.Memory(), e.table.Addr, entries*8), "%+v", e)
		pte, mine := shadowpt.DecodePTE(e.bits), e.bits == 0
		switch {
		case !pte.Valid:
		case pte.Target == shadowpt.VRAM:
			mine = inside(extents, pte.Addr, page)
		case pte.Target.System():
			guestAddr := pte.Addr - uint64(g.index)*window
			mine = guestAddr+page <= window && g.dma().Covers(guestAddr, page, !pte.ReadOnly)
		}
		require.True(t, mine, "an entry that is not the guest's: %+v: %+v", e, pte)
	})
}

// TestReadOnlyPages: a trapped store by a BAR to a page that the guest's tables make read-only is a fault,
// and changes nothing.
func TestReadOnlyPages(t *testing.T) {
	a, _ := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	const table, page, readOnly = 0x300000, 0x380000, vram.PageSize
	writeEntry(t, g, dirAt, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: table}}.Encode())
	writeEntry(t, g, table, shadowpt.PTE{Valid: true, Addr: page}.Encode())
	writeEntry(t, g, table+8, shadowpt.PTE{Valid: true, ReadOnly: true, Addr: page}.Encode())
	inst := writeInstance(t, g, 0, dirAt, 0)
	for bar := devgf100.WindowBAR1; bar <= devgf100.WindowBAR3; bar++ {
		gpu(g).Set(devgf100.Setting(bar), gf100.BlockVirtual|uint32(inst>>12))
		want, got := []byte{1, 2, 3, byte(bar)}, make([]byte, 4)
		_, ok := gpu(g).Write(bar, 0, want)
		require.True(t, ok)
		fault, ok := gpu(g).Write(bar, readOnly, []byte{9, 9, 9, 9})
		require.Equal(t, []any{false, inst, uint64(readOnly), shadowpt.PageReadOnly}, []any{ok, fault.Inst, fault.VA, shadowpt.Reason(fault.Info & 0xf)})
		_, ok = gpu(g).Read(bar, readOnly, got)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
}
