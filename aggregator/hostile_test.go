package aggregator

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/fakecard"
)

// fragment leaves free, of the card's memory, one run of private bytes for tables and runs of
// the given sizes that do not touch.
func fragment(t tester, a *Aggregator, private uint64, sizes ...uint64) {
	t.Helper()
	var free []card.Run
	for i, n := range append([]uint64{private}, sizes...) {
		if i > 0 {
			_, err := a.gpu.AllocVRAM(shadowpt.BigPage, shadowpt.BigPage)
			require.NoError(t, err)
		}
		runs, err := a.gpu.AllocVRAM(n, shadowpt.BigPage)
		require.NoError(t, err)
		require.Len(t, runs, 1)
		free = append(free, runs...)
	}
	_, err := a.gpu.AllocVRAM(a.Free(), vram.PageSize)
	require.NoError(t, err)
	a.gpu.FreeVRAM(free...)
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
		pde := shadowpt.DecodePDE(binary.LittleEndian.Uint64(mem[dir+i*8:]))
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

// TestHostileEntries: page entries of both sizes across the end of an extent, of the
// guest's VRAM, of its mapped memory, of its writable part and of its bus window. Pages
// that are the guest's are entered one by one, and nothing else.
func TestHostileEntries(t *testing.T) {
	const k = 1 << 10
	for _, scan := range []shadowpt.Scan{shadowpt.ScanFull, shadowpt.ScanIncremental} {
		a, f := newAgg(t, Options{})
		fragment(t, a, 5<<20+128<<10, 1<<20, 1<<20, 1<<20, 512<<10, 512<<10)
		other, _ := addGuestIn(t, a, GuestConfig{Name: "other", VRAM: 1 << 20, Tables: 1 << 20})
		mapRAM(t, other, 1<<20) // has the window before
		g, _ := addGuestIn(t, a, GuestConfig{Name: "a", VRAM: 3 << 20, Tables: 4 << 20, Shadow: shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: scan}})
		require.Greater(t, len(g.Extents()), 1)
		mapHalves(t, g, 1<<20)
		window := a.bus.Size()
		type row struct {
			target   shadowpt.Target
			addr     uint64
			readOnly bool
			pages    int // of the 32 of a big page that are the guest's; 32 may be entered as one
		}
		rows := []row{
			{shadowpt.VRAM, 3<<20 - 128*k, false, 32},
			{shadowpt.VRAM, 3<<20 - 124*k, false, 31},
			{shadowpt.VRAM, 3<<20 - 4*k, false, 1},
			{shadowpt.VRAM, 3 << 20, false, 0},
			{shadowpt.VRAM, other.Extents()[0].Card, false, -1},
			{shadowpt.VRAM, 1<<40 - 4*k, false, 0},
			{shadowpt.Peer, 0, false, 0},
			{shadowpt.SystemCoherent, 1<<20 - 128*k, true, 32},
			{shadowpt.SystemCoherent, 1<<20 - 124*k, true, 31},
			{shadowpt.SystemNonCoherent, 1<<20 - 128*k, false, 0},
			{shadowpt.SystemNonCoherent, 512*k - 4*k, false, 1},
			{shadowpt.SystemNonCoherent, 1 << 20, true, 0},
			{shadowpt.SystemNonCoherent, window - 4*k, true, 0},
			{shadowpt.SystemNonCoherent, window, true, 0},
			{shadowpt.SystemNonCoherent, a.bus.At(other.index, 0), true, -1},
			{shadowpt.SystemNonCoherent, a.bus.At(g.index, 0), true, 0},
		}
		end := uint64(0)
		for _, e := range g.Extents() { // across the end of each extent, by all amounts
			end += e.Size
			for n := uint64(4 * k); n < 128*k && end < g.mem.Size(); n += 4 * k {
				rows = append(rows, row{shadowpt.VRAM, end - n, false, 32})
			}
		}
		bigTable, smallTable := uint64(0x200000), uint64(0x240000)
		var big, small []byte
		for _, r := range rows {
			pte := shadowpt.PTE{Valid: true, Target: r.target, Addr: r.addr, ReadOnly: r.readOnly}
			big = binary.LittleEndian.AppendUint64(big, pte.Encode())
			small = binary.LittleEndian.AppendUint64(small, pte.Encode())
		}
		require.True(t, g.mem.Write(shadowpt.VRAM, bigTable, big))
		require.True(t, g.mem.Write(shadowpt.VRAM, smallTable, small))
		pdes := binary.LittleEndian.AppendUint64(nil, shadowpt.PDE{Big: shadowpt.Table{Present: true, Addr: bigTable}}.Encode())
		pdes = binary.LittleEndian.AppendUint64(pdes, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: smallTable}}.Encode())
		require.True(t, g.mem.Write(shadowpt.VRAM, dirAt, pdes))
		bindChannel(t, g, 1)
		g.Invalidate(0, gf100.InvalidateGo|gf100.InvalidateAllDirs)
		settle(g)
		dir := directory(t, f, g, 1)
		checkShadow(t, g, f.Bytes, dir)
		read := func(addr uint64) uint64 { return binary.LittleEndian.Uint64(f.Bytes[addr:]) }
		pde := shadowpt.DecodePDE(read(dir))
		for i, r := range rows {
			name := fmt.Sprintf("%v: %+v", scan, r)
			pages := 0
			for n := range uint64(32) {
				if read(pde.Small.Addr+(uint64(i)*32+n)*8) != 0 {
					pages++
				}
			}
			if read(pde.Big.Addr+uint64(i)*8) != 0 {
				require.Zero(t, pages, name)
				pages = 32
			}
			if r.pages >= 0 {
				require.Equal(t, r.pages, pages, name)
			}
		}
		require.NotZero(t, g.stats.Shadow.ForeignEntries.Load())
	}
}

// TestTranslate compares Translate with a page-by-page model of what belongs to the guest.
func TestTranslate(t *testing.T) {
	a, _ := newAgg(t, Options{})
	fragment(t, a, 2<<20+128<<10, 1<<20, 512<<10, 256<<10, 128<<10, 128<<10)
	other, _ := addGuestIn(t, a, GuestConfig{Name: "other", VRAM: 1 << 20, Tables: 1 << 20})
	mapRAM(t, other, 1<<20)
	g, _ := addGuestIn(t, a, GuestConfig{Name: "a", VRAM: 1 << 20, Tables: 1 << 20})
	require.Greater(t, len(g.Extents()), 2)
	const size = 1 << 20
	mapHalves(t, g, size)
	var pages []uint64 // the card's, by the guest's number
	for _, e := range g.Extents() {
		for at := uint64(0); at < e.Size; at += vram.PageSize {
			pages = append(pages, e.Card+at)
		}
	}
	window := a.bus.Size()
	rapid.Check(t, func(t *rapid.T) {
		target := shadowpt.Target(rapid.IntRange(0, 3).Draw(t, "target"))
		n := []uint64{vram.PageSize, shadowpt.BigPage}[rapid.IntRange(0, 1).Draw(t, "big")]
		base := []uint64{0, size / 2, size, window - 1<<20, window, 1 << 39, a.bus.At(g.index, 0)}[rapid.IntRange(0, 6).Draw(t, "base")]
		addr := base + vram.PageSize*uint64(rapid.IntRange(0, 300).Draw(t, "page"))
		if addr >= vram.PageSize*40 && rapid.Bool().Draw(t, "before") {
			addr -= vram.PageSize * 40
		}
		write := rapid.Bool().Draw(t, "write")
		want, mine := uint64(0), true
		switch {
		case target == shadowpt.VRAM:
			for at := uint64(0); at < n; at += vram.PageSize {
				i := (addr + at) / vram.PageSize
				if mine = mine && i < uint64(len(pages)) && pages[i] == pages[addr/vram.PageSize]+at; !mine {
					break
				}
				want = pages[addr/vram.PageSize]
			}
		case target.System():
			want = uint64(g.index)*window + addr
			mine = addr+n <= size && (!write || addr+n <= size/2)
		default:
			mine = false
		}
		at, ok := g.mem.Translate(target, addr, n, write)
		require.Equal(t, mine, ok, "%d at %#x of target %d, write %t", n, addr, target, write)
		if ok {
			require.Equal(t, want, at)
		}
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
	for _, bar := range []int{card.BAR1, card.BAR3} {
		g.SetBlock(bar, gf100.BlockVirtual|uint32(inst>>12))
		want, got := []byte{1, 2, 3, byte(bar)}, make([]byte, 4)
		_, ok := g.WriteBAR(bar, 0, want)
		require.True(t, ok)
		fault, ok := g.WriteBAR(bar, readOnly, []byte{9, 9, 9, 9})
		require.Equal(t, []any{false, uint64(readOnly), shadowpt.PageReadOnly}, []any{ok, fault.VA, shadowpt.Reason(fault.Info & 0xf)})
		_, ok = g.ReadBAR(bar, readOnly, got)
		require.True(t, ok)
		require.Equal(t, want, got)
	}
}

// TestMemoryOverExtents compares accesses of guest VRAM, by the aggregator and through windows, with
// a plain slice. They cross extents, and those that cross the end of the memory fail; no write
// leaves it.
func TestMemoryOverExtents(t *testing.T) {
	f := fakecard.New(16 << 20)
	a := newAggOn(t, f, patience, Options{})
	fragment(t, a, 1<<20+128<<10, 512<<10, 128<<10, 256<<10, 128<<10)
	g, _ := addGuestIn(t, a, GuestConfig{Name: "a", VRAM: 1 << 20, Tables: 1 << 20})
	require.Greater(t, len(g.Extents()), 2)
	model := make([]byte, 1<<20)
	before := bytes.Clone(f.Bytes)
	rapid.Check(t, func(t *rapid.T) {
		e := rapid.SampledFrom(g.Extents()).Draw(t, "extent")
		n := rapid.SampledFrom([]int{1, 4, 64, vram.PageSize, 64 << 10, 300 << 10}).Draw(t, "size")
		addr := rapid.OneOf(
			rapid.Uint64Range(0, 1<<20+8), rapid.Uint64Range(0, 1<<30), rapid.Uint64Range(max(e.Guest+e.Size, uint64(n))-uint64(n), e.Guest+e.Size),
		).Draw(t, "addr")
		p := make([]byte, n)
		for i := range p {
			p[i] = byte(addr+uint64(i)*7) | 1
		}
		got := make([]byte, n)
		fits := addr+uint64(n) <= 1<<20
		switch rapid.IntRange(0, 3).Draw(t, "how") {
		case 0:
			require.Equal(t, fits, g.mem.Write(shadowpt.VRAM, addr, p))
			require.Equal(t, fits, g.mem.Read(shadowpt.VRAM, addr, got))
			require.Equal(t, fits, g.mem.SameTable(shadowpt.VRAM, addr, p))
		case 1:
			g.WritePRAMIN(uint32(addr>>16), uint32(addr&0xffff), p)
			g.ReadPRAMIN(uint32(addr>>16), uint32(addr&0xffff), got)
		case 2:
			_, ok := g.WriteBAR(1, addr, p)
			require.Equal(t, fits, ok)
			_, ok = g.ReadBAR(1, addr, got)
			require.Equal(t, fits, ok)
		case 3: // a read of what others wrote
			p = nil
			if fits {
				p = model[addr:][:n]
			}
			g.ReadPRAMIN(uint32(addr>>16), uint32(addr&0xffff), got)
		}
		if fits {
			require.True(t, bytes.Equal(p, got))
			copy(model[addr:], p)
		}
	})
	for _, e := range g.Extents() {
		require.True(t, bytes.Equal(model[e.Guest:][:e.Size], f.Bytes[e.Card:][:e.Size]))
		copy(before[e.Card:e.Card+e.Size], f.Bytes[e.Card:])
	}
	require.True(t, bytes.Equal(before, f.Bytes), "memory of others was written")
}
