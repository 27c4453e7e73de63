package windows

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/shadowpt"
	"github.com/umbra-gpu/umbra/tests/scale"
)

// Where the test keeps things in VRAM. The tables are 8 MiB away from the data, so
// that PRAMIN shows one or the other.
const (
	dirOf3   = 0x100000
	tableOf3 = 0x110000
	instOf3  = 0x150000
	dirOf1   = 0x180000
	tableOf1 = 0x190000
	instOf1  = 0x1d0000
	dataAt   = 0x900000
	dataEnd  = dataAt + 10*page
)

// bar is the test's state of BAR1 or BAR3.
type bar struct {
	index            int
	dir, table, inst uint64
	first            uint64 // page from which on it is mapped
	on               bool
	entries          map[uint64]shadowpt.PTE // by page, as written
	shown            map[uint64]shadowpt.PTE // as invalidated
}

func newBARs(first uint64) [2]*bar {
	return [2]*bar{
		{index: 3, dir: dirOf3, table: tableOf3, inst: instOf3,
			entries: map[uint64]shadowpt.PTE{}, shown: map[uint64]shadowpt.PTE{}},
		{index: 1, dir: dirOf1, table: tableOf1, inst: instOf1, first: first,
			entries: map[uint64]shadowpt.PTE{}, shown: map[uint64]shadowpt.PTE{}},
	}
}

// program does the same to both sides and records its state for comparisons.
type program struct {
	t     *rapid.T
	sides [2]*side // mapped, trapped
	bars  [2]*bar
	win   uint64
	first uint64 // page of BAR1 from which on the test uses it

	// The window through which bytes of a page of VRAM were accessed since the last
	// barrier: the result of an access through another window without a barrier is
	// undefined.
	ways map[uint64]string
	// What the guest wrote to places that show nothing, by BAR and page.
	scratch map[string][]byte
}

func (p *program) vram() uint64 { return p.sides[0].vram }

func (p *program) both(f func(s *side)) {
	for _, s := range p.sides {
		f(s)
	}
}

func (p *program) barrier() {
	p.both((*side).barrier)
	clear(p.ways)
}

// setUp writes tables and switches the BARs on.
func (p *program) setUp() {
	p.bars, p.win = newBARs(p.first), 0
	p.ways, p.scratch = map[uint64]string{}, map[string][]byte{}
	for _, b := range p.bars {
		p.both(func(s *side) { s.build(b) })
		p.win = b.dir / praminSize * praminSize
		p.switchBAR(b, true)
	}
}

// enter writes a page entry.
func (s *side) enter(b *bar, at uint64, e shadowpt.PTE) {
	s.poke(b.table+at*8, binary.LittleEndian.AppendUint64(nil, s.format.EncodePTE(e)))
}

// effect makes the BAR's entries count.
func (s *side) effect(t require.TestingT, b *bar) {
	s.barrier()
	s.name(b)
	s.invalidate(false)
	for begin := time.Now(); !s.shown(); {
		require.Less(t, time.Since(begin), patience, "the invalidate does not end")
	}
}

func (p *program) switchBAR(b *bar, on bool) {
	p.both(func(s *side) { s.turn(b, on) })
	p.changed(b, func() {
		b.on = on
		b.shown = map[uint64]shadowpt.PTE{}
		if on {
			for k, v := range b.entries {
				b.shown[k] = v
			}
		}
	})
	clear(p.ways)
}

// changed notes what happens to places when what they show changes.
func (p *program) changed(b *bar, f func()) {
	before := map[uint64]bool{}
	for at := range b.shown {
		before[at] = p.shows(b, at)
	}
	f()
	for at, shown := range before {
		if shown && !p.shows(b, at) {
			delete(p.scratch, key(b.index, at)) // cleared when its page went
		}
	}
	for at := range b.shown {
		if p.shows(b, at) {
			delete(p.scratch, key(b.index, at))
		}
	}
}

func key(bar int, at uint64) string { return fmt.Sprintf("BAR%d page %d", bar, at) }

// shows reports whether a place of a BAR shows VRAM.
func (p *program) shows(b *bar, at uint64) bool {
	e, ok := b.shown[at]
	return ok && e.Valid && e.Target == shadowpt.VRAM && e.Addr < p.vram()
}

func (p *program) n(what string, lo, hi int) uint64 {
	return uint64(rapid.IntRange(lo, hi).Draw(p.t, what))
}

func (p *program) one(what string, of int) bool {
	return rapid.IntRange(0, of-1).Draw(p.t, what) == of-1
}

func (p *program) bar() *bar { return rapid.SampledFrom(p.bars[:]).Draw(p.t, "bar") }

// remap changes some entries and invalidates.
func (p *program) remap() {
	b := p.bar()
	p.barrier()
	for range p.n("entries", 1, 5) {
		at := b.first + p.n("place", 0, 11)
		e := shadowpt.PTE{Valid: !p.one("empty", 4), ReadOnly: p.one("read-only", 8)}
		e.Addr = dataAt + p.n("data page", 0, 9)*page
		switch p.n("else", 0, 15) {
		case 15:
			e.Target = shadowpt.SystemCoherent
		case 14:
			e.Addr = b.table // a driver writes its tables through the window
			e.ReadOnly = false
		case 13:
			e.Addr = p.vram()
		}
		p.both(func(s *side) { s.enter(b, at, e) })
		p.win = b.table / praminSize * praminSize
		b.entries[at] = e
	}
	p.both(func(s *side) { s.effect(p.t, b) })
	clear(p.ways)
	p.changed(b, func() {
		if b.on {
			b.shown = map[uint64]shadowpt.PTE{}
			for k, v := range b.entries {
				b.shown[k] = v
			}
		}
	})
}

// drawPage draws a place and returns where it lies in a BAR, and which page of VRAM it
// shows.
func (p *program) drawPage() (bar int, off, addr uint64, shown, readOnly bool) {
	if p.one("PRAMIN", 4) {
		at := p.n("page", 0, 15) * page
		if p.win != dataAt/praminSize*praminSize {
			at = tableOf3 - dirOf3 // no other page is read there
		}
		return 0, pramin + at, p.win + at, p.win+at < p.vram(), false
	}
	b := p.bar()
	at := b.first + p.n("place", 0, 11)
	e := b.shown[at]
	return b.index, at * page, e.Addr, p.shows(b, at), e.ReadOnly
}

// way notes how a page is reached.
func (p *program) way(addr uint64, how string) {
	if was, ok := p.ways[addr]; ok && was != how {
		p.barrier()
	}
	p.ways[addr] = how
}

func (p *program) store() {
	bar, off, addr, shown, readOnly := p.drawPage()
	in, size := p.n("offset", 0, 15)*8, int(p.n("size", 1, 8))
	data := rapid.SliceOfN(rapid.Byte(), size, size).Draw(p.t, "data")
	if shown && (readOnly || addr < dataAt || addr >= dataEnd) {
		return // not into tables; a store to a read-only page is refused only if it traps
	}
	if shown {
		p.way(addr, key(bar, off/page))
		p.both(func(s *side) { s.write(bar, off+in, data) })
		return
	}
	if bar == 0 {
		return
	}
	k := key(bar, off/page)
	if p.scratch[k] == nil {
		p.scratch[k] = make([]byte, page)
	}
	copy(p.scratch[k][in:], data)
	p.sides[0].write(bar, off+in, data)
}

// engine stores past the windows, as an engine does: trapped accesses go straight
// to where the page lives.
func (p *program) engine() {
	bar, off, addr, shown, readOnly := p.drawPage()
	if !shown || readOnly || addr < dataAt || addr >= dataEnd {
		return
	}
	p.way(addr, "engine")
	in := p.n("offset", 0, 15) * 8
	data := binary.LittleEndian.AppendUint64(nil, rapid.Uint64().Draw(p.t, "data"))
	p.both(func(s *side) { s.WriteBAR(bar, off+in, data) })
}

func (p *program) movePRAMIN() {
	p.win = rapid.SampledFrom([]uint64{dataAt - 0x90000, dataAt, dirOf3, p.vram() - praminSize/2, 4 * p.vram()}).Draw(p.t, "PRAMIN") / 0x10000 * 0x10000
	p.both(func(s *side) { s.wr(s.window, uint32(p.win>>16)) })
	clear(p.ways)
}

// compare holds every place that the program uses against the other side's.
func (p *program) compare() {
	p.barrier()
	for _, b := range p.bars {
		for at := b.first; at < b.first+12; at++ {
			got := p.sides[0].read(b.index, at*page, page)
			if !p.shows(b, at) {
				want := p.scratch[key(b.index, at)]
				if want == nil {
					want = make([]byte, page)
				}
				p.equal(want, got, "nothing in "+key(b.index, at))
				continue
			}
			want := make([]byte, page)
			p.sides[1].trapped(b.index, at*page, want)
			p.equal(want, got, key(b.index, at))
			p.sides[0].trapped(b.index, at*page, got)
			p.equal(want, got, key(b.index, at)+", trapped")
		}
	}
	for at := uint64(0); at < praminSize && p.win < p.vram(); at += page {
		if p.win+at < p.vram() {
			p.equal(p.sides[1].read(0, pramin+at, 64), p.sides[0].read(0, pramin+at, 64), "PRAMIN")
		}
	}
}

func (p *program) equal(want, got []byte, what string) {
	if bytes.Equal(want, got) {
		return
	}
	for i := range want {
		if want[i] != got[i] {
			p.t.Fatalf("%s: byte %#x is %#x, want %#x", what, i, got[i], want[i])
		}
	}
}

// everything compares the data and the tables themselves.
func (p *program) everything() {
	for _, r := range [][2]uint64{{dataAt, dataEnd}, {dirOf3, dirOf3 + page}, {tableOf3, tableOf3 + page}, {tableOf1, tableOf1 + page}} {
		for at := r[0]; at < r[1]; at += page {
			p.equal(p.sides[1].peek(at, page), p.sides[0].peek(at, page), fmt.Sprintf("VRAM %#x", at))
		}
	}
	p.win = tableOf1 / praminSize * praminSize
}

// TestMappedEqualsTrapped: for any use of its windows, a guest reads the same data from
// them, and its memory is the same, with them mapped and trapped.
func TestMappedEqualsTrapped(t *testing.T) {
	const beyond = pollSize / page
	for name, make := range setups {
		t.Run(name, func(t *testing.T) {
			equal(t, make(t, offer{Map: aperture.MapAll}), make(t, offer{}), beyond)
		})
		t.Run(name+", few pages a trap", func(t *testing.T) {
			if name == "pass-through" || name == "virtual, own spaces" {
				scale.ReleaseOnly(t) // the same windows
			}
			mapped, trapped := make(t, offer{Map: aperture.MapAll, Limits: aperture.Limits{Moves: 3}}), make(t, offer{})
			mapped.patient = true
			if equal(t, mapped, trapped, beyond) >= enough {
				require.NotZero(t, mapped.stats.Deferred.Load())
			}
		})
	}
}

// enough programs do surely what is counted: one in three does. Fewer run with -short, under
// the race detector, and when the time that all tests have is nearly over.
const enough = 50

// equal runs programs on both sides, and returns how many. Of BAR1 they use places from page
// first on.
func equal(t *testing.T, mapped, trapped *side, first uint64) (programs int) {
	rapid.Check(t, func(t *rapid.T) {
		programs++
		p := &program{t: t, sides: [2]*side{mapped, trapped}, first: first}
		p.both(func(s *side) { s.restart(t) })
		p.setUp()
		for range rapid.IntRange(1, 40).Draw(t, "operations") {
			switch p.n("operation", 0, 11) {
			case 0, 1, 2:
				p.remap()
			case 3:
				p.movePRAMIN()
			case 4:
				p.engine()
			case 5:
				if p.one("switch", 3) {
					p.switchBAR(p.bar(), !p.one("off", 3))
				}
			case 6:
				p.compare()
			default:
				p.store()
			}
		}
		p.compare()
		p.everything()
		p.compare()
	})
	require.Zero(t, mapped.stats.MovesRefused.Load())
	require.Zero(t, trapped.stats.PagesMoved.Load())
	if programs >= enough {
		require.NotZero(t, mapped.stats.PagesMoved.Load())
		require.NotZero(t, mapped.stats.BytesMerged.Load())
	}
	return programs
}
