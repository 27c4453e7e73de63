package card

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"sort"
	"sync"
	"sync/atomic"
)

// DMA is how a card is told which memory it reaches, by bus address.
type DMA interface {
	// MapDMA makes m reachable at addr. The range must be free.
	MapDMA(addr uint64, m Mapping) error
	// UnmapDMA takes back the mappings that have a byte among the n at addr, as a whole, also
	// those that lie there only in part. It returns when no access of the card uses them.
	UnmapDMA(addr, n uint64)
}

// Mapping is memory that a card reaches by DMA.
type Mapping struct {
	Mem   []byte
	Write bool  // the card may write it
	Owner uint8 // of the channels that reach it, on a card that tells owners apart: ShareConfig.Number
	// Wrote is called after the card wrote, or may have written, n bytes of Mem at off, and
	// for all writes before UnmapDMA returns. It may be nil.
	Wrote func(off, n uint64)
	// Populate is called before each access to n bytes of Mem at off by the process itself, with
	// faults made panics, and reports whether the access may go on: the memory is another
	// process's, and pages may be absent. It may be nil.
	Populate func(off, n uint64) bool
	// File has the bytes of Mem from Off on, for a card that maps them itself. It is nil if unknown.
	// Its owner keeps it open until UnmapDMA returns.
	File *os.File
	Off  uint64
}

// Reach reports whether the process itself may access n bytes of m.Mem at off now. A fault must
// panic (debug.SetPanicOnFault).
func (m *Mapping) Reach(off, n uint64) bool { return m.Populate == nil || m.Populate(off, n) }

// Mappings is a table of mappings by bus address, for cards that translate addresses
// themselves. Its methods may be called concurrently. At waits for nobody, and may return a
// mapping for a moment after Unmap has removed it.
type Mappings struct {
	changing sync.Mutex
	now      atomic.Pointer[table] // replaced by each change
}

// table is in two levels, so that a change copies a few kilobytes, however many mappings there are:
// guests that an IOMMU protects have tens of thousands, and all guests of a card share its table.
type table struct {
	chunks [][]*mapped // by address, disjoint; none is empty
	last   atomic.Pointer[mapped]
}

const (
	mostInChunk  = 256
	leastInChunk = mostInChunk / 4 // of two neighbours together
)

type mapped struct {
	addr uint64
	Mapping
}

func (m *mapped) holds(addr uint64) bool { return addr-m.addr < uint64(len(m.Mem)) }

var noMappings table

func (t *Mappings) table() *table { return cmp.Or(t.now.Load(), &noMappings) }

func (m *mapped) endsAfter(addr uint64) bool { return m.addr >= addr || m.holds(addr) }

// from returns where the first mapping is that ends after addr: in chunk c at i. If there is none, c
// is the number of chunks.
func (t *table) from(addr uint64) (c, i int) {
	c = sort.Search(len(t.chunks), func(c int) bool { l := t.chunks[c]; return l[len(l)-1].endsAfter(addr) })
	if c < len(t.chunks) {
		l := t.chunks[c]
		i = sort.Search(len(l), func(i int) bool { return l[i].endsAfter(addr) })
	}
	return c, i
}

// replace returns a table with list in place of the chunks c to end.
func (t *table) replace(c, end int, list []*mapped) *table {
	switch {
	case len(list) >= leastInChunk:
	case c > 0:
		c--
		list = slices.Concat(t.chunks[c], list)
	case end < len(t.chunks):
		list = slices.Concat(list, t.chunks[end])
		end++
	}
	var chunks [][]*mapped
	switch n := len(list); {
	case n > mostInChunk:
		chunks = [][]*mapped{slices.Clone(list[:n/2]), slices.Clone(list[n/2:])}
	case n > 0:
		chunks = [][]*mapped{list}
	}
	return &table{chunks: slices.Concat(t.chunks[:c], chunks, t.chunks[end:])}
}

// Map enters a mapping.
func (t *Mappings) Map(addr uint64, m Mapping) error {
	t.changing.Lock()
	defer t.changing.Unlock()
	old := t.table()
	n := uint64(len(m.Mem))
	c, i := old.from(addr)
	if n == 0 || addr+(n-1) < addr || c < len(old.chunks) && old.chunks[c][i].addr <= addr+(n-1) {
		return fmt.Errorf("map %#x bytes for DMA at bus address %#x: want a range that is free and not empty", n, addr)
	}
	if c == len(old.chunks) {
		t.now.Store(old.replace(c, c, []*mapped{{addr, m}}))
	} else {
		t.now.Store(old.replace(c, c+1, slices.Concat(old.chunks[c][:i], []*mapped{{addr, m}}, old.chunks[c][i:])))
	}
	return nil
}

// Unmap removes the mappings that have a byte among the n at addr, and returns them.
func (t *Mappings) Unmap(addr, n uint64) (removed []*Mapping) {
	t.changing.Lock()
	defer t.changing.Unlock()
	old := t.table()
	c, i := old.from(addr)
	if c == len(old.chunks) {
		return nil
	}
	keep := old.chunks[c][:i]
	for end := c; ; i = 0 {
		l := old.chunks[end]
		for ; i < len(l) && (l[i].holds(addr) || l[i].addr-addr < n); i++ {
			removed = append(removed, &l[i].Mapping)
		}
		if end++; i < len(l) || end == len(old.chunks) {
			if removed != nil {
				t.now.Store(old.replace(c, end, slices.Concat(keep, l[i:])))
			}
			return removed
		}
	}
}

// At returns the mapping that holds the byte at addr and permits the access, and where in
// its memory the byte is. It returns nil if there is none.
func (t *Mappings) At(addr uint64, write bool) (*Mapping, uint64) {
	now := t.table()
	m := now.last.Load()
	if m == nil || !m.holds(addr) {
		c, i := now.from(addr)
		if c == len(now.chunks) || !now.chunks[c][i].holds(addr) {
			return nil, 0
		}
		m = now.chunks[c][i]
		now.last.Store(m)
	}
	if write && !m.Write {
		return nil, 0
	}
	return &m.Mapping, addr - m.addr
}
