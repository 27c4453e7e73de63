package aperture

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// fakeTables is memory that holds tables. Reads outside fail.
type fakeTables struct {
	mem   []byte
	reads int
}

func (f *fakeTables) ReadTable(t shadowpt.Target, addr uint64, p []byte) bool {
	f.reads++
	if t != shadowpt.VRAM || addr > uint64(len(f.mem)) || uint64(len(p)) > uint64(len(f.mem))-addr {
		return false
	}
	copy(p, f.mem[addr:])
	return true
}

func (f *fakeTables) SameTable(t shadowpt.Target, addr uint64, p []byte) bool {
	return t == shadowpt.VRAM && addr <= uint64(len(f.mem)) && bytes.HasPrefix(f.mem[addr:], p)
}

func (f *fakeTables) put(addr, q uint64) { binary.LittleEndian.PutUint64(f.mem[addr:], q) }

// Read64 implements shadowpt.Memory, for the walk that is the oracle.
func (f *fakeTables) Read64(t shadowpt.Target, addr uint64) (uint64, bool) {
	var b [8]byte
	ok := f.ReadTable(t, addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), ok
}

// Where the tests have tables. Directories above the last one each name the next at their first entry.
const (
	upperAt  = 0x1000
	dirAt    = 0x8000
	bigAt    = 0x10000
	smallAt  = 0x20000
	small2At = 0x60000
	tablesIn = 0xa0000
)

// walked is what a walk says that a page of the window shows.
func walked(f *shadowpt.Format, m shadowpt.Memory, b *Binding, page, vram uint32) entry {
	if !b.On {
		return nothing
	}
	p, _, ok := f.Walk(m, b.Space, uint64(page)<<pageShift)
	at := (p.Addr + uint64(page)<<pageShift - p.VA) >> pageShift
	if !ok || !p.Valid || p.Supervisor || p.Target != shadowpt.VRAM || at >= uint64(vram) {
		return nothing
	}
	return shows(uint32(at))
}

// TestScannerEqualsWalk: a scanner that reads changed entries only shows the same pages as
// a walk of the tables.
func TestScannerEqualsWalk(t *testing.T) {
	for _, f := range []*shadowpt.Format{shadowpt.Fermi, shadowpt.Hopper} {
		t.Run(f.Name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkScanner(t, f) }) })
	}
}

func checkScanner(t *rapid.T, f *shadowpt.Format) {
	const vram = 5000
	last := len(f.Dirs) - 1
	dir := &f.Dirs[last]
	span := int(dir.Span() >> pageShift)
	group := int(f.Pages[big].Span() >> pageShift)
	window := span + span/4 // two entries of the last directory, the second cut short
	m := &fakeTables{mem: make([]byte, tablesIn)}
	put := func(l *shadowpt.Level, table uint64, i int, p shadowpt.PDE) {
		for k, q := range l.Encode(p) {
			if k < int(l.Words) {
				m.put(table+uint64(i*int(l.Words)+k)*8, q)
			}
		}
	}
	// above is where the directory of a depth lies.
	above := func(depth int) uint64 {
		if depth == last {
			return dirAt
		}
		return upperAt + uint64(depth)*0x1000
	}
	for depth := range last {
		put(&f.Dirs[depth], above(depth), 0, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: above(depth + 1)}})
	}
	s := newScanner(f, new(Binding), BAR1, uint32(window), vram)
	var stats Stats
	now := make(map[uint32]entry)
	pages := []int{0, group - 1, group, span/2 - 1, span / 2, span - 1, span, span + group + 1, window - 1}
	pte := func() shadowpt.PTE {
		return shadowpt.PTE{
			Valid:      rapid.IntRange(0, 4).Draw(t, "valid") > 0,
			ReadOnly:   rapid.IntRange(0, 4).Draw(t, "read-only") == 0,
			Supervisor: rapid.IntRange(0, 6).Draw(t, "supervisor") == 0,
			Target:     rapid.SampledFrom([]shadowpt.Target{0, 0, 0, 0, 2, 3}).Draw(t, "target"),
			Addr:       rapid.Uint64Range(0, vram+40).Draw(t, "frame") << 12,
		}
	}
	touched := map[uint32]bool{}
	for range rapid.IntRange(1, 25).Draw(t, "rounds") {
		switch rapid.IntRange(0, 6).Draw(t, "what") {
		case 0:
			*s.Binding = Binding{rapid.IntRange(0, 3).Draw(t, "on") > 0, shadowpt.Space{Dir: above(0), Limit: rapid.SampledFrom([]uint64{
				f.VASize() - 1, uint64(span)<<12 - 1, uint64(group)<<12 - 1, 1<<12 - 1}).Draw(t, "limit")}}
			if rapid.IntRange(0, 5).Draw(t, "no directory") == 0 {
				s.Space.Dir = tablesIn
			}
		case 1:
			pde := shadowpt.PDE{Size: uint8(rapid.IntRange(0, 3).Draw(t, "size"))}
			if last > 0 { // such have no size, but other entries
				pde.Size = 0
				switch page := pte(); rapid.IntRange(0, 5).Draw(t, "kind of entry") {
				case 0:
					pde.Sparse = true
				case 1:
					page.Addr &^= dir.Span() - 1
					page.Valid = true
					pde.Page = f.EncodePTE(page)
				}
			}
			if rapid.Bool().Draw(t, "big table") {
				pde.Big = shadowpt.Table{Present: true, Addr: bigAt}
			}
			if rapid.IntRange(0, 3).Draw(t, "small table") > 0 {
				pde.Small = shadowpt.Table{Present: true, Addr: rapid.SampledFrom([]uint64{smallAt, small2At, tablesIn - 0x1000}).Draw(t, "at")}
			}
			put(dir, dirAt, rapid.IntRange(0, 1).Draw(t, "directory entry"), pde)
		case 2:
			if last > 0 {
				depth := rapid.IntRange(0, last-1).Draw(t, "depth")
				there := rapid.Bool().Draw(t, "there")
				put(&f.Dirs[depth], above(depth), 0, shadowpt.PDE{Small: shadowpt.Table{Present: there, Addr: above(depth + 1)}})
			}
		default:
			for range rapid.IntRange(1, 6).Draw(t, "entries") {
				p := rapid.SampledFrom(pages).Draw(t, "page")
				touched[uint32(p)] = true
				e := pte()
				if !e.Valid && last > 0 {
					e.NoSmall = rapid.Bool().Draw(t, "no small page")
				}
				if rapid.IntRange(0, 4).Draw(t, "big") == 0 {
					m.put(bigAt+uint64(p%span/group)*8, f.EncodePTE(e))
					continue
				}
				e.NoSmall = false
				m.put(rapid.SampledFrom([]uint64{smallAt, small2At}).Draw(t, "table")+uint64(p%span)*8, f.EncodePTE(e))
			}
		}
		s.scan(m, &stats, func(p uint32, e entry) { now[p] = e })
		for p := range touched {
			for _, q := range []uint32{p, p / uint32(group) * uint32(group), min(p|uint32(group-1), uint32(window-1)), p % uint32(span)} {
				require.Equal(t, walked(f, m, s.Binding, q, vram), now[q], "page %d", q)
			}
		}
	}
}

// TestScanOfOneChangeAllocatesNothing: after a change of one entry, the scan decodes one, for any
// size of the table, and allocates nothing.
func TestScanOfOneChangeAllocatesNothing(t *testing.T) {
	m := &fakeTables{mem: make([]byte, tablesIn)}
	m.put(dirAt, shadowpt.PDE{Small: shadowpt.Table{Present: true, Addr: smallAt}}.Encode())
	for i := range uint64(shadowpt.SmallEntries) {
		m.put(smallAt+i*8, shadowpt.PTE{Valid: true, Addr: i << 12}.Encode())
	}
	var stats Stats
	s := newScanner(shadowpt.Fermi, &Binding{true, shadowpt.Space{Dir: dirAt, Limit: 1<<40 - 1}}, BAR1, shadowpt.SmallEntries, 1<<20)
	n := 0
	count := func(uint32, entry) { n++ }
	s.scan(m, &stats, count)
	require.Equal(t, shadowpt.SmallEntries, n)
	n = 0
	s.scan(m, &stats, count)
	require.Zero(t, n)
	before := stats.EntriesChanged.Load()
	const times = 20 // several: another goroutine's allocation would count in a single scan
	at := uint64(smallAt + 777*8)
	require.Zero(t, testing.AllocsPerRun(times, func() {
		m.put(at, 0)
		at += 8
		s.scan(m, &stats, count)
	}))
	require.Equal(t, times+1, n) // AllocsPerRun does it once before it counts
	require.Equal(t, before+times+1, stats.EntriesChanged.Load())
}
