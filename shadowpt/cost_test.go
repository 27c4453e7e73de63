package shadowpt_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// plain is a guest with one piece of VRAM, and an address space of its card, without checks: so that
// only the package is measured.
type plain struct {
	vram  []byte
	card  []uint64 // addresses of small pages
	last  uint64   // where the last table is
	asked int      // calls of SameTables
	told  int      // changes
}

func (p *plain) ReadTable(_ shadowpt.Target, addr uint64, b []byte) bool {
	return addr < uint64(len(p.vram)) && copy(b, p.vram[addr:]) == len(b)
}
func (p *plain) SameTable(_ shadowpt.Target, addr uint64, b []byte) bool {
	return bytes.Equal(b, p.vram[addr:addr+uint64(len(b))])
}
func (p *plain) SameTables(parts []shadowpt.Part) {
	p.asked++
	for i := range parts { // not sameEach, which costs as much as a comparison
		q := &parts[i]
		q.Same = p.SameTable(q.Target, q.Addr, q.Bytes)
	}
}

// sameEach compares part by part.
func sameEach(m shadowpt.Tables, parts []shadowpt.Part) {
	for i := range parts {
		p := &parts[i]
		p.Same = m.SameTable(p.Target, p.Addr, p.Bytes)
	}
}

func (p *plain) Translate(_ shadowpt.Target, addr, n uint64, _ bool) (uint64, bool) {
	return 1<<36 + addr, addr+n <= uint64(len(p.vram))
}
func (p *plain) Apply(list []shadowpt.Change) (int, error) {
	p.told += len(list)
	for i := range list {
		c := &list[i]
		pages := p.card[c.VA>>12:][:c.Size>>12]
		for i := range pages {
			pages[i] = c.PageAddr(uint64(i))
		}
	}
	return len(list), nil
}

// plainVRAM holds a hundred full tables.
const plainVRAM = plainTables + 100*shadowpt.SmallTableSize

// newPlain makes one with so many bytes of VRAM, and tables of small pages.
func newPlain(vram, tables int) *plain {
	return &plain{vram: make([]byte, vram), card: make([]uint64, tables*shadowpt.SmallEntries)}
}

const plainTables = shadowpt.DirSize // where the first table of a plain guest is

// populated is a space of n tables of 4 KiB pages, every entry of them valid and
// read-only, built and followed. The guest's VRAM is as large for any n.
func populated(t require.TestingT, n int) (*plain, *shadowpt.Tracker, *shadowpt.Shadow) {
	p := newPlain(plainVRAM, n)
	for i := range n {
		at := uint64(plainTables + i*shadowpt.SmallTableSize)
		p.last = at
		put(p.vram, uint64(i)*8, shadowpt.PDE{Small: small(at)}.Encode())
		for k := range uint64(shadowpt.SmallEntries) {
			put(p.vram, at+k*8, shadowpt.PTE{Valid: true, ReadOnly: true, Addr: k % 64 << 12}.Encode())
		}
	}
	work := shadowpt.NewWork(shadowpt.Fermi, 1<<62, 1<<62)
	tr := shadowpt.NewTracker(p, work, uint64(len(p.vram)), 1<<40)
	s := shadowpt.NewShadow(p, p, work, shadowpt.Space{Limit: shadowpt.VASize - 1})
	tr.Follow(s)
	tr.Release()
	return p, tr, s
}

// change writes another entry of the last table and reports it, as a trap does. It is
// always the same table, to keep cache effects out.
func (p *plain) change(tr *shadowpt.Tracker, i int) {
	at := p.last + uint64(i*8191)%shadowpt.SmallTableSize&^7
	q := binary.LittleEndian.Uint64(p.vram[at:])
	put(p.vram, at, q^1<<32)
	tr.Wrote(at, 8)
}

// TestOneEntryCostsOneLine: one changed entry in a full table costs the comparison of one
// line and one write, for any number of tables; nothing is allocated.
func TestOneEntryCostsOneLine(t *testing.T) {
	for _, n := range []int{1, 10, 100} {
		p, tr, s := populated(t, n)
		i := 0
		step := func() {
			was := *tr.Counts
			p.change(tr, i)
			i++
			tr.UpdateAll()
			tr.Release()
			require.Equal(t, uint64(1), tr.Counts.Changed-was.Changed)
			require.Equal(t, uint64(shadowpt.LineSize/8), tr.Counts.Examined-was.Examined)
			require.Equal(t, uint64(shadowpt.LineSize), tr.Counts.Compared-was.Compared)
			require.Equal(t, uint64(1), s.Counts.Rewritten-was.Rewritten)
		}
		for range 100 {
			step()
		}
		was := *tr.Counts
		tr.UpdateAll()
		require.Equal(t, was, *tr.Counts, "nothing changed: nothing is looked at")
		require.Zero(t, testing.AllocsPerRun(100, func() {
			p.change(tr, i)
			i++
			tr.UpdateAll()
			tr.Release()
		}))
		require.Zero(t, testing.AllocsPerRun(100, func() { tr.Wrote(plainTables, 1) }))
	}
}

// TestScatteredPagesShareChanges: pages anywhere in memory are one change, as far as its list of addresses
// goes; nothing is allocated.
func TestScatteredPagesShareChanges(t *testing.T) {
	p, tr, _ := populated(t, 1)
	p.told = 0
	const turns = 10
	turn := uint64(0)
	require.Zero(t, testing.AllocsPerRun(turns-1, func() {
		turn++
		for k := range uint64(shadowpt.SmallEntries) {
			put(p.vram, plainTables+k*8, shadowpt.PTE{Valid: true, ReadOnly: true, Addr: (k*3 + turn) % 64 << 12}.Encode())
		}
		tr.Wrote(plainTables, shadowpt.SmallTableSize)
		tr.UpdateAll()
		tr.Release()
	}))
	require.Equal(t, turns*shadowpt.SmallEntries/shadowpt.MaxAddrs, p.told)
}

// TestUntrappedTablesAreCompared: a table that is written without a trap costs a
// comparison of its pages at each look, in calls of MaxParts, and its changed entries.
func TestUntrappedTablesAreCompared(t *testing.T) {
	p, tr, s := populated(t, 1)
	*tr.Counts, p.asked = shadowpt.Counts{}, 0
	tr.Untrapped(plainTables, shadowpt.SmallTableSize, true)
	put(p.vram, plainTables+4096, 0)
	tr.UpdateAll()
	require.Equal(t, 1, p.asked)
	require.Equal(t, uint64(shadowpt.SmallTableSize), tr.Counts.Compared)
	require.Equal(t, uint64(32), tr.Counts.Examined, "where they differ, 256 bytes at a time")
	require.Equal(t, uint64(1), tr.Counts.Changed)
	rewritten := s.Counts.Rewritten
	tr.Untrapped(plainTables, shadowpt.SmallTableSize, false)
	put(p.vram, plainTables+8192, 0) // the last one before that
	tr.UpdateAll()
	require.Equal(t, uint64(2*shadowpt.SmallTableSize), tr.Counts.Compared, "a last time")
	require.Equal(t, rewritten+1, s.Counts.Rewritten)
	tr.UpdateAll()
	require.Equal(t, uint64(2*shadowpt.SmallTableSize), tr.Counts.Compared)
}

// TestEmptyPagesCostNothing: a new, sparse space costs its used pages, not the size of its
// tables: no more entries are read.
func TestEmptyPagesCostNothing(t *testing.T) {
	p := newPlain(2*plainTables+shadowpt.SmallTableSize+shadowpt.BigTableSize, 18)
	const at = 2 * plainTables
	put(p.vram, 17*8, shadowpt.PDE{Small: small(at), Big: small(at + shadowpt.SmallTableSize)}.Encode())
	put(p.vram, at+5*shadowpt.SmallPage, shadowpt.PTE{Valid: true}.Encode())
	put(p.vram, at+63*shadowpt.SmallPage+8, shadowpt.PTE{Valid: true}.Encode())
	const page, used = shadowpt.SmallPage / 8, 3 // pages: one of the directory, two of the small table
	work := shadowpt.NewWork(shadowpt.Fermi, 1<<62, 1<<62)
	tr := shadowpt.NewTracker(p, work, uint64(len(p.vram)), 1<<40)
	s := shadowpt.NewShadow(p, p, work, shadowpt.Space{Limit: shadowpt.VASize - 1})
	tr.Follow(s)
	const all = (shadowpt.DirSize + shadowpt.SmallTableSize + shadowpt.BigTableSize) / shadowpt.SmallPage
	require.Equal(t, uint64((all-used)*shadowpt.SmallPage), tr.Counts.Compared, "with nothing")
	require.Equal(t, uint64(used*page), s.Counts.Examined)
	require.Equal(t, uint64(2), s.Counts.Rewritten)
}

// TestOnlyNamedSpacesAreScanned: an update of named spaces does not examine the others,
// for any number of them.
func TestOnlyNamedSpacesAreScanned(t *testing.T) {
	p, tr, s := populated(t, 4)
	other := shadowpt.NewShadow(p, p, shadowpt.NewWork(shadowpt.Fermi, 1<<62, 1<<62), shadowpt.Space{Dir: uint64(len(p.vram)), Limit: shadowpt.VASize - 1})
	const tables = plainTables + 4*shadowpt.SmallTableSize // with the directory
	tr.Follow(other)                                       // nothing is there: it has no tables
	tr.Untrapped(0, uint64(len(p.vram)), true)
	*tr.Counts, p.asked = shadowpt.Counts{}, 0
	tr.UpdateAll()
	compared, rewritten := tr.Counts.Compared, s.Counts.Rewritten
	require.Equal(t, uint64(tables), compared)
	require.Equal(t, tables/shadowpt.SmallPage/shadowpt.MaxParts+1, p.asked)
	p.change(tr, 1)
	tr.Update(other)
	require.Equal(t, compared, tr.Counts.Compared)
	tr.Update(s)
	require.Equal(t, compared+tables, tr.Counts.Compared)
	require.Equal(t, rewritten+1, s.Counts.Rewritten)
	tr.Untrapped(0, uint64(len(p.vram)), false)
	tr.Update(s) // a last time
	compared = tr.Counts.Compared
	p.change(tr, 2)
	tr.Update(other, s)
	require.Equal(t, compared+shadowpt.LineSize, tr.Counts.Compared, "of many pages the line that was written")
}
