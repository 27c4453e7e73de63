package card

import (
	"fmt"
	"slices"
	"sort"
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
// themselves. At may be called concurrently; Map and Unmap exclude every other call.
type Mappings struct {
	list []*mapped // by address, disjoint
	last atomic.Pointer[mapped]
}

type mapped struct {
	addr uint64
	Mapping
}

func (m *mapped) holds(addr uint64) bool { return addr-m.addr < uint64(len(m.Mem)) }

// from returns the index of the first mapping that ends after addr.
func (t *Mappings) from(addr uint64) int {
	return sort.Search(len(t.list), func(i int) bool { m := t.list[i]; return m.addr >= addr || m.holds(addr) })
}

// Map enters a mapping.
func (t *Mappings) Map(addr uint64, m Mapping) error {
	n, i := uint64(len(m.Mem)), t.from(addr)
	if n == 0 || addr+(n-1) < addr || i < len(t.list) && t.list[i].addr <= addr+(n-1) {
		return fmt.Errorf("map %#x bytes for DMA at bus address %#x: want a range that is free and not empty", n, addr)
	}
	t.list = slices.Insert(t.list, i, &mapped{addr, m})
	return nil
}

// Unmap removes the mappings that have a byte among the n at addr.
func (t *Mappings) Unmap(addr, n uint64) {
	i := t.from(addr)
	end := i
	for end < len(t.list) && (t.list[end].holds(addr) || t.list[end].addr-addr < n) {
		end++
	}
	t.list = slices.Delete(t.list, i, end)
	t.last.Store(nil)
}

// At returns the mapping that holds the byte at addr and permits the access, and where in
// its memory the byte is. It returns nil if there is none.
func (t *Mappings) At(addr uint64, write bool) (*Mapping, uint64) {
	m := t.last.Load()
	if m == nil || !m.holds(addr) {
		i := t.from(addr)
		if i == len(t.list) || !t.list[i].holds(addr) {
			return nil, 0
		}
		m = t.list[i]
		t.last.Store(m)
	}
	if write && !m.Write {
		return nil, 0
	}
	return &m.Mapping, addr - m.addr
}
