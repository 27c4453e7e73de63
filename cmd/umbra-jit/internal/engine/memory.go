package engine

import (
	"encoding/binary"
	"errors"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// Memory is what the table shows, for package interp: accesses of instructions that are not compiled.
func (p *Pages) Memory() interp.Memory { return memory{p} }

type memory struct{ pages *Pages }

var errPage = errors.New("not in the table of pages")

// at returns the memory at an address, up to the end of its page.
func (m memory) at(addr uint64, right uint64) ([]byte, error) {
	if addr>>compile.AddressBits != 0 {
		return nil, errPage
	}
	entry := binary.LittleEndian.Uint64(m.pages.table[addr>>compile.PageBits*8:])
	if entry&right == 0 {
		return nil, errPage
	}
	return hostBytes(entry&^(pageSize-1), pageSize)[addr%pageSize:], nil
}

// each calls f for each piece of an access that lies in one page.
func (m memory) each(addr uint64, b []byte, right uint64, f func(memory, b []byte) int) error {
	for len(b) > 0 {
		from, err := m.at(addr, right)
		if err != nil {
			return err
		}
		n := f(from, b)
		addr, b = addr+uint64(n), b[n:]
	}
	return nil
}

// Load implements interp.Memory.
func (m memory) Load(addr uint64, to []byte) error {
	return m.each(addr, to, compile.PageReadable, func(memory, b []byte) int { return copy(b, memory) })
}

// Store implements interp.Memory.
func (m memory) Store(addr uint64, from []byte) error {
	return m.each(addr, from, compile.PageWritable, func(memory, b []byte) int { return copy(memory, b) })
}

// Update implements interp.Memory.
func (m memory) Update(addr uint64, size int, f func(old uint64) uint64) (uint64, error) {
	b, err := m.at(addr, compile.PageWritable)
	if err != nil {
		return 0, err
	}
	if addr%uint64(size) != 0 || size != 4 && size != 8 {
		return 0, errors.New("atomic access that is not aligned")
	}
	for {
		if size == 4 {
			p := word32(b)
			if old := atomic.LoadUint32(p); atomic.CompareAndSwapUint32(p, old, uint32(f(uint64(old)))) {
				return uint64(old), nil
			}
			continue
		}
		p := word64(b)
		if old := atomic.LoadUint64(p); atomic.CompareAndSwapUint64(p, old, f(old)) {
			return old, nil
		}
	}
}
