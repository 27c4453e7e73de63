package aggregator

import (
	"bytes"
	"runtime/debug"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// memory returns the guest's system memory, nil if there is none.
func (g *Guest) memory() card.Bus { return g.agg.bus.Memory(g.index) }

// access is the operation on a buffer and memory of the guest.
type access uint8

const (
	take    access = iota // copy memory to the buffer
	put                   // copy the buffer to memory
	compare               // compare them; copy nothing
)

// copySystem copies p to or from the guest's system memory at a bus address, or compares
// it, page by page because adjacent pages may lie in different mappings. The memory
// belongs to another process, which may truncate its file at any time; such an access
// fails like one on a bus.
func (g *Guest) copySystem(addr uint64, p []byte, how access) (ok bool) {
	m := g.memory()
	if m == nil {
		return false
	}
	m.Acquire()
	defer m.Release()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if card.MemoryFault(recover()) {
			ok = false
		}
	}()
	for len(p) > 0 {
		n := min(len(p), int(vram.PageSize-addr%vram.PageSize))
		mem := m.Slice(addr, n, how == put)
		switch {
		case mem == nil:
			return false
		case how == put:
			copy(mem, p[:n])
		case how == take:
			copy(p[:n], mem)
		case !bytes.Equal(p[:n], mem):
			return false
		}
		p, addr = p[n:], addr+uint64(n)
	}
	return true
}

// move copies p to or from the guest's VRAM through its extents, or its system memory
// through its DMA map.
func (g *Guest) move(t shadowpt.Target, addr uint64, p []byte, write bool) bool {
	switch {
	case t == shadowpt.VRAM:
		return g.eachRun(addr, p, write)
	case t.System() && write:
		return g.copySystem(addr, p, put)
	case t.System():
		return g.copySystem(addr, p, take)
	}
	return false
}

func (g *Guest) read(t shadowpt.Target, addr uint64, p []byte) bool { return g.move(t, addr, p, false) }

// eachRun copies p to or from the guest's VRAM, across extents.
func (g *Guest) eachRun(addr uint64, p []byte, write bool) bool {
	if !write {
		return g.copyRuns(addr, p, take)
	}
	ok := g.copyRuns(addr, p, put)
	g.wrote(addr, uint64(len(p)))
	return ok
}

func (g *Guest) copyRuns(addr uint64, p []byte, how access) bool {
	if addr >= g.extents.Size() || uint64(len(p)) > g.extents.Size()-addr {
		return false
	}
	g.moving.RLock()
	defer g.moving.RUnlock()
	c := g.agg.gpu
	for len(p) > 0 {
		at, together, _ := g.extents.At(addr)
		n := min(uint64(len(p)), together)
		ok := false
		switch how {
		case take:
			ok = c.ReadVRAM(at, p[:n])
		case put:
			ok = c.WriteVRAM(at, p[:n])
		case compare:
			ok = c.SameVRAM(at, p[:n])
		}
		if !ok {
			return false
		}
		addr += n
		p = p[n:]
	}
	return true
}

// ReadTable implements shadowpt.Guest.
func (g *Guest) ReadTable(t shadowpt.Target, addr uint64, p []byte) bool { return g.read(t, addr, p) }

// SameTable implements shadowpt.Guest.
func (g *Guest) SameTable(t shadowpt.Target, addr uint64, p []byte) bool {
	if t == shadowpt.VRAM {
		return g.copyRuns(addr, p, compare)
	}
	return t.System() && g.copySystem(addr, p, compare)
}

// Translate implements shadowpt.Guest.
func (g *Guest) Translate(t shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	if t == shadowpt.VRAM {
		return g.extents.Translate(addr, n)
	}
	m := g.memory()
	if m == nil || !t.System() || addr >= g.agg.bus.Size() || n > g.agg.bus.Size()-addr {
		return 0, false
	}
	m.Acquire()
	defer m.Release()
	return g.agg.bus.At(g.index, addr), m.Slice(addr, int(n), write) != nil
}
