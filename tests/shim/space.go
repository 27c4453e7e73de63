package shim

import (
	"encoding/binary"
	"fmt"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// addressBits is the size of an address space.
const addressBits = 40

// space is an address space of the card: one directory, and tables where something was mapped.
type space struct {
	share  card.Share
	dir    uint64
	tables map[uint64]*tables // by address / DirSpan
}

type tables struct{ small, big uint64 }

func newSpace(share card.Share) (*space, error) {
	dir, ok := share.AllocTable(shadowpt.DirSize)
	if !ok {
		return nil, card.ErrTables
	}
	return &space{share: share, dir: dir, tables: make(map[uint64]*tables)}, nil
}

// set maps size bytes at va to where p says, or unmaps them if p is not valid. Both are whole
// pages of the size.
func (s *space) set(va, size, page uint64, p shadowpt.PTE) error {
	for end := va + size; va < end; {
		n := min(end, (va/shadowpt.DirSpan+1)*shadowpt.DirSpan) - va
		table, err := s.table(va, page)
		if err != nil {
			return err
		}
		entries := make([]byte, n/page*8)
		for i := uint64(0); i < n/page && p.Valid; i++ {
			binary.LittleEndian.PutUint64(entries[i*8:], p.Encode())
			p.Addr += page
		}
		s.share.WriteTable(table+va%shadowpt.DirSpan/page*8, entries)
		va += n
	}
	if !s.share.Invalidate(s.dir) {
		return fmt.Errorf("the card did not complete an invalidate")
	}
	return nil
}

// table returns the page table of an address for pages of a size.
func (s *space) table(va, page uint64) (uint64, error) {
	i := va / shadowpt.DirSpan
	t := s.tables[i]
	if t == nil {
		t = new(tables)
		s.tables[i] = t
	}
	at, size := &t.small, uint64(shadowpt.SmallTableSize)
	if page == shadowpt.BigPage {
		at, size = &t.big, shadowpt.BigEntries*8
	}
	if *at == 0 {
		addr, ok := s.share.AllocTable(size)
		if !ok {
			return 0, card.ErrTables
		}
		*at = addr
		pde := shadowpt.PDE{
			Small: shadowpt.Table{Present: t.small != 0, Addr: t.small},
			Big:   shadowpt.Table{Present: t.big != 0, Addr: t.big},
		}
		s.share.WriteTable(s.dir+i*8, binary.LittleEndian.AppendUint64(nil, pde.Encode()))
	}
	return *at, nil
}
