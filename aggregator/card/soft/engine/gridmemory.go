package engine

import (
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// gridMemory is the address space as a processor's program reaches it: addresses beyond it do not wrap.
// A program can reach a page with each lane, so each look-up asks whether the step's time is over, and
// the executor has to stop for many pages that are found without one.
type gridMemory struct{ *processor }

// Bytes implements simd.Pages: memory does not move before the step ends.
func (m gridMemory) Bytes(addr uint64, n int, write bool) ([]byte, error) {
	if err := within(addr, uint64(n)); err != nil {
		return nil, err
	}
	if p := m.pages.find(addr/pageSize, write); p != nil {
		if m.found += costFound; m.found >= burst*costUnit {
			m.executor.Stop()
		}
		at := int(addr % pageSize)
		return p[at:min(at+n, pageSize)], nil
	}
	b, over, err := m.pool.step.fetch(addr, uint64(n), write)
	if over {
		m.executor.Stop()
	}
	return b, err
}

// within checks that n bytes at addr are in the address space.
func within(addr, n uint64) error {
	if addr > vaMask || n > 1<<vaBits-addr {
		return &interp.Fault{Cause: interp.BadAddress, Lane: -1, Addr: addr, What: "an address of more than 40 bits"}
	}
	return nil
}

// refusedAccess is the error of an access that the address space refused.
type refusedAccess struct{ Fault }

func (refusedAccess) Error() string { return "the address space refused an access" }

func (m gridMemory) Load(addr uint64, to []byte) error {
	for len(to) > 0 {
		mem, err := m.Bytes(addr, len(to), false)
		if err != nil {
			return err
		}
		n := copy(to, mem)
		to, addr = to[n:], addr+uint64(n)
	}
	return nil
}

func (m gridMemory) Store(addr uint64, from []byte) error {
	for len(from) > 0 {
		mem, err := m.Bytes(addr, len(from), true)
		if err != nil {
			return err
		}
		n := copy(mem, from)
		from, addr = from[n:], addr+uint64(n)
	}
	return nil
}

// Update changes an aligned value, which lies in one page, at once for all processors.
func (m gridMemory) Update(addr uint64, size int, f func(uint64) uint64) (uint64, error) {
	b, err := m.Bytes(addr, size, true)
	if err != nil {
		return 0, err
	}
	if len(b) < size {
		return 0, refusedAccess{Fault{VA: addr, Write: true}}
	}
	if size == 8 {
		v := interp.Long(b)
		for {
			old := atomic.LoadUint64(v)
			if atomic.CompareAndSwapUint64(v, old, f(old)) {
				return old, nil
			}
		}
	}
	v := interp.Word(b)
	for {
		old := atomic.LoadUint32(v)
		if atomic.CompareAndSwapUint32(v, old, uint32(f(uint64(old)))) {
			return uint64(old), nil
		}
	}
}
