package card

import (
	"cmp"
	"fmt"
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
	Write bool // the card may write it
	// Wrote is called after the card wrote, or may have written, n bytes of Mem at off, and
	// for all writes before UnmapDMA returns. It may be nil.
	Wrote func(off, n uint64)
}

// Mappings is a table of mappings by bus address, for cards that translate addresses
// themselves. Its methods may be called concurrently. At waits for nobody, and may return a
// mapping for a moment after Unmap has removed it.
type Mappings struct {
	changing sync.Mutex
	now      atomic.Pointer[table] // replaced by each change
}

type table struct {
	list []*mapped // by address, disjoint
	last atomic.Pointer[mapped]
}

type mapped struct {
	addr uint64
	Mapping
}

func (m *mapped) holds(addr uint64) bool { return addr-m.addr < uint64(len(m.Mem)) }

var noMappings table

func (t *Mappings) table() *table { return cmp.Or(t.now.Load(), &noMappings) }

// from returns the index of the first mapping that ends after addr.
func (t *table) from(addr uint64) int {
	return sort.Search(len(t.list), func(i int) bool { m := t.list[i]; return m.addr >= addr || m.holds(addr) })
}

// Map enters a mapping.
func (t *Mappings) Map(addr uint64, m Mapping) error {
	t.changing.Lock()
	defer t.changing.Unlock()
	old := t.table()
	n, i := uint64(len(m.Mem)), old.from(addr)
	if n == 0 || addr+(n-1) < addr || i < len(old.list) && old.list[i].addr <= addr+(n-1) {
		return fmt.Errorf("map %#x bytes for DMA at bus address %#x: want a range that is free and not empty", n, addr)
	}
	t.now.Store(&table{list: slices.Concat(old.list[:i], []*mapped{{addr, m}}, old.list[i:])})
	return nil
}

// Unmap removes the mappings that have a byte among the n at addr, and reports whether there were
// any.
func (t *Mappings) Unmap(addr, n uint64) bool {
	t.changing.Lock()
	defer t.changing.Unlock()
	old := t.table()
	i := old.from(addr)
	end := i
	for end < len(old.list) && (old.list[end].holds(addr) || old.list[end].addr-addr < n) {
		end++
	}
	if i == end {
		return false
	}
	t.now.Store(&table{list: slices.Concat(old.list[:i], old.list[end:])})
	return true
}

// At returns the mapping that holds the byte at addr and permits the access, and where in
// its memory the byte is. It returns nil if there is none.
func (t *Mappings) At(addr uint64, write bool) (*Mapping, uint64) {
	now := t.table()
	m := now.last.Load()
	if m == nil || !m.holds(addr) {
		i := now.from(addr)
		if i == len(now.list) || !now.list[i].holds(addr) {
			return nil, 0
		}
		m = now.list[i]
		now.last.Store(m)
	}
	if write && !m.Write {
		return nil, 0
	}
	return &m.Mapping, addr - m.addr
}
