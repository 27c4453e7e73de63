package aggregator

import (
	"github.com/umbra-gpu/umbra/shadowpt"
)

// access is the operation on a buffer and the guest's VRAM.
type access uint8

const (
	take    access = iota // copy memory to the buffer
	put                   // copy the buffer to memory
	compare               // compare them; copy nothing
)

// move copies p to or from the guest's VRAM through its extents, or its system memory
// through its DMA map.
func (g *Guest) move(t shadowpt.Target, addr uint64, p []byte, write bool) bool {
	switch {
	case t == shadowpt.VRAM:
		return g.eachRun(addr, p, write)
	case t.System() && write:
		return g.dma.Write(addr, p)
	case t.System():
		return g.dma.Read(addr, p)
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
	return t.System() && g.dma.Same(addr, p)
}

// Translate implements shadowpt.Guest.
func (g *Guest) Translate(t shadowpt.Target, addr, n uint64, write bool) (uint64, bool) {
	if t == shadowpt.VRAM {
		return g.extents.Translate(addr, n)
	}
	return g.dma.At(addr), t.System() && g.dma.Covers(addr, n, write)
}
