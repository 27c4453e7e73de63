package aggregator

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// fragment leaves free, of the card's memory, one run of own bytes for the aggregator and
// runs of the given sizes that do not touch.
func fragment(a *Aggregator, private uint64, sizes ...uint64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var keep []vram.Run
	r, _ := a.memory.Take(private, shadowpt.BigPage)
	keep = append(keep, r)
	for _, n := range sizes {
		a.memory.Take(shadowpt.BigPage, shadowpt.BigPage)
		r, _ := a.memory.Take(n, shadowpt.BigPage)
		keep = append(keep, r)
	}
	a.memory = vram.Allocator{}
	a.memory.Release(keep...)
}

// checkShadow fails unless every entry of the shadow at dir names memory of the guest:
// tables in memory that the aggregator keeps for it, pages inside one extent of its VRAM
// or inside its mapped memory, with the permission that they have there.
func checkShadow(t require.TestingT, g *Guest, mem []byte, dir uint64) {
	inside := func(runs []vram.Run, at, n uint64) bool {
		for _, r := range runs {
			if at >= r.Addr && at+n <= r.Addr+r.Size {
				return true
			}
		}
		return false
	}
	var extents []vram.Run
	for _, e := range g.extents.List() {
		extents = append(extents, vram.Run{Addr: e.Card, Size: e.Size})
	}
	window := g.agg.bus.window()
	require.True(t, inside(g.privateRuns, dir, shadowpt.DirSize))
	for i := range uint64(shadowpt.DirEntries) {
		pde := shadowpt.DecodePDE(binary.LittleEndian.Uint64(mem[dir+i*8:]))
		for _, table := range []struct {
			shadowpt.Table
			entries, page uint64
		}{{pde.Big, shadowpt.BigEntries, shadowpt.BigPage}, {pde.Small, shadowpt.SmallEntries, shadowpt.SmallPage}} {
			if !table.Present {
				continue
			}
			require.Equal(t, shadowpt.VRAM, table.Target)
			require.True(t, inside(g.privateRuns, table.Addr, table.entries*8), "a table at %#x", table.Addr)
			for k := range table.entries {
				q := binary.LittleEndian.Uint64(mem[table.Addr+k*8:])
				if q == 0 {
					continue
				}
				pte, mine := shadowpt.DecodePTE(q), false
				switch {
				case !pte.Valid:
				case pte.Target == shadowpt.VRAM:
					mine = inside(extents, pte.Addr, table.page)
				case pte.Target.System():
					guestAddr := pte.Addr - uint64(g.index)*window
					mine = guestAddr+table.page <= window && g.memory() != nil && g.memory().Slice(guestAddr, int(table.page), !pte.ReadOnly) != nil
				}
				if !mine {
					require.Failf(t, "an entry that is not the guest's", "slot %d, a page of %#x: %+v", i, table.page, pte)
				}
			}
		}
	}
}

// halfBus is memory that may be written in its lower half only.
type halfBus struct{ cutFile }

func (b halfBus) Slice(addr uint64, n int, write bool) []byte {
	if write && addr+uint64(n) > uint64(len(b.mem)/2) {
		return nil
	}
	return b.cutFile.Slice(addr, n, write)
}

// TestHostileEntries: page entries of both sizes across the end of an extent, of the
// guest's VRAM, of its mapped memory, of its writable part and of its bus window. Pages
// that are the guest's are entered one by one, and nothing else.
func TestHostileEntries(t *testing.T) {
	const k = 1 << 10
	for _, scan := range []shadowpt.Scan{shadowpt.ScanFull, shadowpt.ScanIncremental} {
		a, f := newAgg(t, Options{})
		fragment(a, 5<<20+128<<10, 1<<20, 1<<20, 1<<20, 512<<10, 512<<10)
		other, _ := addGuestIn(t, a, GuestConfig{Name: "other", VRAM: 1 << 20, Tables: 1 << 20})
		other.AttachMemory(cutFile{make([]byte, 1<<20)}) // has the window before
		g, _ := addGuestIn(t, a, GuestConfig{Name: "a", VRAM: 3 << 20, Tables: 4 << 20, Shadow: shadowpt.Policy{Sync: shadowpt.SyncFlush, Scan: scan}})
		require.Greater(t, len(g.extents.List()), 1)
		g.AttachMemory(halfBus{cutFile{make([]byte, 1<<20)}})
		window := a.bus.window()
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
			{shadowpt.VRAM, other.extents.List()[0].Card, false, -1},
			{shadowpt.VRAM, 1<<40 - 4*k, false, 0},
			{shadowpt.Peer, 0, false, 0},
			{shadowpt.SystemCoherent, 1<<20 - 128*k, true, 32},
			{shadowpt.SystemCoherent, 1<<20 - 124*k, true, 31},
			{shadowpt.SystemNonCoherent, 1<<20 - 128*k, false, 0},
			{shadowpt.SystemNonCoherent, 512*k - 4*k, false, 1},
			{shadowpt.SystemNonCoherent, 1 << 20, true, 0},
			{shadowpt.SystemNonCoherent, window - 4*k, true, 0},
			{shadowpt.SystemNonCoherent, window, true, 0},
			{shadowpt.SystemNonCoherent, a.bus.at(other.index, 0), true, -1},
			{shadowpt.SystemNonCoherent, a.bus.at(g.index, 0), true, 0},
		}
		end := uint64(0)
		for _, e := range g.extents.List() { // across the end of each extent, by all amounts
			end += e.Size
			for n := uint64(4 * k); n < 128*k && end < g.extents.Size(); n += 4 * k {
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
		require.True(t, g.eachRun(bigTable, big, true))
		require.True(t, g.eachRun(smallTable, small, true))
		pdes := binary.LittleEndian.AppendUint64(nil, shadowpt.PDE{Big: shadowpt.Table{Present: true, Addr: bigTable}}.Encode())
		pdes = binary.LittleEndian.AppendUint64(pdes, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: smallTable}}.Encode())
		require.True(t, g.eachRun(dirAt, pdes, true))
		bindChannel(t, g, 1)
		g.Invalidate(0, gf100.InvalidateGo|gf100.InvalidateAllDirs)
		settle(g)
		dir := g.cardChannel(1).space.shadow.Dir()
		checkShadow(t, g, f.vram, dir)
		read := func(addr uint64) uint64 { return binary.LittleEndian.Uint64(f.vram[addr:]) }
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
		require.NotZero(t, g.stats.ForeignEntries.Load())
	}
}

func addGuestIn(t *testing.T, a *Aggregator, cfg GuestConfig) (*Guest, *recorder) {
	t.Helper()
	ev := &recorder{}
	g, err := a.AddGuest(cfg, ev)
	require.NoError(t, err)
	return g, ev
}

// TestTranslate compares Translate with a page-by-page model of the guest's memory.
func TestTranslate(t *testing.T) {
	a, _ := newAgg(t, Options{})
	fragment(a, 2<<20+128<<10, 1<<20, 512<<10, 256<<10, 128<<10, 128<<10)
	other, _ := addGuestIn(t, a, GuestConfig{Name: "other", VRAM: 1 << 20, Tables: 1 << 20})
	other.AttachMemory(cutFile{make([]byte, 1<<20)})
	g, _ := addGuestIn(t, a, GuestConfig{Name: "a", VRAM: 1 << 20, Tables: 1 << 20})
	require.Greater(t, len(g.extents.List()), 2)
	const size = 1 << 20
	g.AttachMemory(halfBus{cutFile{make([]byte, size)}})
	var pages []uint64 // the card's, by the guest's number
	for _, e := range g.Extents() {
		for at := uint64(0); at < e.Size; at += vram.PageSize {
			pages = append(pages, e.Card+at)
		}
	}
	window := a.bus.window()
	rapid.Check(t, func(t *rapid.T) {
		target := shadowpt.Target(rapid.IntRange(0, 3).Draw(t, "target"))
		n := []uint64{vram.PageSize, shadowpt.BigPage}[rapid.IntRange(0, 1).Draw(t, "big")]
		base := []uint64{0, size / 2, size, window - 1<<20, window, 1 << 39, a.bus.at(g.index, 0)}[rapid.IntRange(0, 6).Draw(t, "base")]
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
		at, ok := g.Translate(target, addr, n, write)
		require.Equal(t, mine, ok, "%d at %#x of target %d, write %t", n, addr, target, write)
		if ok {
			require.Equal(t, want, at)
		}
	})
}

// TestMemoryOverExtents compares reads and writes of guest VRAM with a plain slice. They
// cross extents, and those that cross the end of the memory fail; no write leaves it.
func TestMemoryOverExtents(t *testing.T) {
	f := newFake(16 << 20)
	a := newAggOn(t, f, Options{})
	fragment(a, 1<<20+128<<10, 512<<10, 128<<10, 256<<10, 128<<10)
	g, _ := addGuestIn(t, a, GuestConfig{Name: "a", VRAM: 1 << 20, Tables: 1 << 20})
	require.Greater(t, len(g.extents.List()), 2)
	model := make([]byte, 1<<20)
	before := bytes.Clone(f.vram)
	check := func(t require.TestingT, addr uint64, p []byte, write bool) {
		fits := addr+uint64(len(p)) <= 1<<20
		if write {
			for i := range p {
				p[i] = byte(addr+uint64(i)*7) | 1
			}
			require.Equal(t, fits, g.move(shadowpt.VRAM, addr, p, true))
			if fits {
				copy(model[addr:], p)
			}
			return
		}
		require.Equal(t, fits, g.move(shadowpt.VRAM, addr, p, false))
		if fits {
			require.True(t, bytes.Equal(model[addr:addr+uint64(len(p))], p))
			require.True(t, g.SameTable(shadowpt.VRAM, addr, p))
		}
	}
	for _, e := range g.extents.List() { // across the end of each
		for _, n := range []uint64{4, vram.PageSize, 64 << 10} {
			check(t, e.Guest+e.Size-n/2, make([]byte, n), true)
			check(t, e.Guest+e.Size-n/2, make([]byte, n), false)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		addr := rapid.Uint64Range(0, 1<<20+8).Draw(t, "addr")
		check(t, addr, make([]byte, rapid.IntRange(1, 300<<10).Draw(t, "size")), rapid.Bool().Draw(t, "write"))
	})
	for _, e := range g.extents.List() {
		copy(before[e.Card:e.Card+e.Size], f.vram[e.Card:])
	}
	require.True(t, bytes.Equal(before, f.vram), "memory of others was written")
}

// TestHostileRunlist: entries that name no channel of the guest, and more entries than there
// are channels, list nothing else.
func TestHostileRunlist(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	bindChannel(t, g, 1)
	list(t, g, 128, 129, 255, 256, 1<<20, ^uint32(0), 1)
	require.Equal(t, []uint32{uint32(g.cardChannel(1).id)}, f.runlist())
	list(t, g, append(make([]uint32, gf100.Channels), 1)...)
	require.Empty(t, f.runlist(), "an entry beyond the number of channels")
}

// TestMemoryIsScrubbed: a guest finds nothing of the one that had its memory before.
func TestMemoryIsScrubbed(t *testing.T) {
	a, f := newAgg(t, Options{})
	g, _ := addGuest(t, a, "a")
	e := g.extents.List()[0]
	require.True(t, g.eachRun(0, bytes.Repeat([]byte{0x5a}, 4<<20), true))
	require.NoError(t, g.Remove())
	require.Equal(t, make([]byte, e.Size), f.vram[e.Card:e.Card+e.Size])
}
