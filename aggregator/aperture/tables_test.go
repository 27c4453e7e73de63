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

const (
	dirAt    = 0
	bigAt    = 0x10000
	smallAt  = 0x20000
	small2At = 0x60000
	tablesIn = 0xa0000
)

// walked is what a walk says that a page of the window shows.
func walked(m shadowpt.Memory, on bool, s shadowpt.Space, page, vram uint32) entry {
	if !on {
		return nothing
	}
	p, _, ok := shadowpt.Walk(m, s, uint64(page)<<pageShift)
	at := (p.Addr + uint64(page)<<pageShift - p.VA) >> pageShift
	if !ok || p.Supervisor || p.Target != shadowpt.VRAM || at >= uint64(vram) {
		return nothing
	}
	return shows(uint32(at))
}

// TestScannerEqualsWalk: a scanner that reads changed entries only shows the same pages as
// a walk of the tables.
func TestScannerEqualsWalk(t *testing.T) {
	const window, vram = 40000, 5000 // two directory entries, the second cut short
	rapid.Check(t, func(t *rapid.T) {
		m := &fakeTables{mem: make([]byte, tablesIn)}
		s := newScanner(new(Binding), BAR1, window, vram)
		var stats Stats
		now := make(map[uint32]entry)
		page := rapid.Custom(func(t *rapid.T) uint32 {
			return uint32(rapid.SampledFrom([]int{0, 31, 32, 512, 1023, 32767, 32768, 33000, 39999}).Draw(t, "page"))
		})
		touched := map[uint32]bool{}
		on, space := false, shadowpt.Space{}
		for range rapid.IntRange(1, 25).Draw(t, "rounds") {
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				on = rapid.IntRange(0, 3).Draw(t, "on") > 0
				space = shadowpt.Space{Dir: dirAt, Limit: rapid.SampledFrom([]uint64{
					1<<40 - 1, 32768<<12 - 1, 32*4096 - 1, 1<<12 - 1}).Draw(t, "limit")}
				if rapid.IntRange(0, 5).Draw(t, "no directory") == 0 {
					space.Dir = tablesIn
				}
				*s.Binding = Binding{on, space}
			case 1:
				d := rapid.Uint64Range(0, 1).Draw(t, "directory entry")
				pde := shadowpt.PDE{Size: uint8(rapid.IntRange(0, 3).Draw(t, "size"))}
				if rapid.Bool().Draw(t, "big table") {
					pde.Big = shadowpt.Table{Present: true, Addr: bigAt}
				}
				if rapid.IntRange(0, 3).Draw(t, "small table") > 0 {
					pde.Small = shadowpt.Table{Present: true, Addr: rapid.SampledFrom([]uint64{smallAt, small2At, tablesIn - 0x1000}).Draw(t, "at")}
				}
				m.put(dirAt+d*8, pde.Encode())
			default:
				for range rapid.IntRange(1, 6).Draw(t, "entries") {
					p := page.Draw(t, "page")
					touched[p] = true
					pte := shadowpt.PTE{
						Valid:      rapid.IntRange(0, 4).Draw(t, "valid") > 0,
						ReadOnly:   rapid.IntRange(0, 4).Draw(t, "read-only") == 0,
						Supervisor: rapid.IntRange(0, 6).Draw(t, "supervisor") == 0,
						Target:     rapid.SampledFrom([]shadowpt.Target{0, 0, 0, 0, 2, 3}).Draw(t, "target"),
						Addr:       rapid.Uint64Range(0, vram+40).Draw(t, "frame") << 12,
					}
					if rapid.IntRange(0, 4).Draw(t, "big") == 0 {
						m.put(bigAt+uint64(p%32768/perBig)*8, pte.Encode())
						continue
					}
					m.put(rapid.SampledFrom([]uint64{smallAt, small2At}).Draw(t, "table")+uint64(p%32768)*8, pte.Encode())
				}
			}
			s.scan(m, &stats, func(p uint32, e entry) { now[p] = e })
			for p := range touched {
				for _, q := range []uint32{p, p &^ 31, p | 31, p % 32768} {
					if q < window {
						require.Equal(t, walked(m, on, space, q, vram), now[q], "page %d", q)
					}
				}
			}
		}
	})
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
	s := newScanner(&Binding{true, shadowpt.Space{Limit: 1<<40 - 1}}, BAR1, shadowpt.SmallEntries, 1<<20)
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
