package engine

import (
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
)

// Pages is the table of pages of an address space. It takes 2 GiB of addresses, of which only what is
// written takes memory.
type Pages struct{ table []byte }

const (
	pageSize  = 1 << compile.PageBits
	tableSize = 8 << (compile.AddressBits - compile.PageBits)
)

// NewPages makes a table of nothing.
func NewPages() (*Pages, error) {
	table, err := unix.Mmap(-1, 0, tableSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("addresses for a table of pages, %d bytes: %w", tableSize, err)
	}
	return &Pages{table}, nil
}

// Map shows memory of this process, which must be aligned to pages and stay where it is.
func (p *Pages) Map(addr uint64, memory []byte, rights uint64) error {
	host := sliceAddress(memory)
	if addr%pageSize != 0 || host%pageSize != 0 || len(memory)%pageSize != 0 || (addr+uint64(len(memory)))>>compile.AddressBits != 0 {
		return fmt.Errorf("%#x bytes of memory at %#x for the address %#x: want whole pages of %#x bytes, and addresses of %d bits", len(memory), host, addr, pageSize, compile.AddressBits)
	}
	for i := 0; i < len(memory); i += pageSize {
		n := (addr + uint64(i)) >> compile.PageBits
		atomic.StoreUint64(word64(p.table[8*n:]), host+uint64(i)|rights) // code may run meanwhile
	}
	return nil
}

// Unmap forgets pages, of which there may be none. No code runs that uses the table.
func (p *Pages) Unmap(addr, size uint64) {
	end := min(addr+size, 1<<compile.AddressBits)
	if addr < end {
		clear(p.table[addr>>compile.PageBits*8 : (end+pageSize-1)>>compile.PageBits*8])
	}
}

// Clear forgets all pages, and gives the table's memory back. No code runs that uses the table.
func (p *Pages) Clear() {
	if unix.Madvise(p.table, unix.MADV_DONTNEED) != nil { // it is ours, so it cannot fail
		clear(p.table)
	}
}

// Address is where the table is.
func (p *Pages) Address() uint64 { return sliceAddress(p.table) }

// Close drops the table.
func (p *Pages) Close() error { return unix.Munmap(p.table) }
