package soft_test

import (
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// space is an address space under construction.
type space struct {
	r   *rig
	dir uint64
	pts map[uint64]shadowpt.PDE // tables by directory index
}

func (r *rig) newSpace() *space {
	return &space{r: r, dir: r.alloc(shadowpt.DirSize), pts: map[uint64]shadowpt.PDE{}}
}

// table returns the directory entry for va, with the wanted table in it.
func (s *space) table(va uint64, big bool) shadowpt.PDE {
	di := va / shadowpt.DirSpan
	pde := s.pts[di]
	t, n := &pde.Small, uint64(shadowpt.SmallEntries*8)
	if big {
		t, n = &pde.Big, shadowpt.BigEntries*8
	}
	if !t.Present {
		*t = shadowpt.Table{Present: true, Addr: s.r.alloc(n)}
		s.pts[di] = pde
		s.r.vramWrite64(s.dir+di*8, pde.Encode())
	}
	return pde
}

// pte writes one page entry; the zero PTE takes the page away.
func (s *space) pte(va uint64, pte shadowpt.PTE) {
	pde := s.table(va, false)
	s.r.vramWrite64(pde.Small.Addr+va%shadowpt.DirSpan/shadowpt.SmallPage*8, pte.Encode())
}

func (s *space) bigPTE(va uint64, pte shadowpt.PTE) {
	pde := s.table(va, true)
	s.r.vramWrite64(pde.Big.Addr+va%shadowpt.DirSpan/shadowpt.BigPage*8, pte.Encode())
}

func (s *space) mapPage(va uint64, pte shadowpt.PTE) {
	pte.Valid = true
	s.pte(va, pte)
}

// mapVRAM maps n bytes of VRAM at va.
func (s *space) mapVRAM(va, addr, n uint64) {
	for off := uint64(0); off < n; off += shadowpt.SmallPage {
		s.mapPage(va+off, shadowpt.PTE{Addr: addr + off})
	}
}

// mapRAM maps n bytes of the host's memory at va.
func (s *space) mapRAM(va, addr, n uint64) {
	for off := uint64(0); off < n; off += shadowpt.SmallPage {
		s.mapPage(va+off, shadowpt.PTE{Addr: addr + off, Target: shadowpt.SystemNonCoherent})
	}
}

// instance makes an instance block of the space.
func (r *rig) instance(s *space, limit uint64) uint64 {
	inst := r.alloc(gf100.InstanceSize)
	b := make([]byte, gf100.InstanceSize)
	gf100.InstPDBLo.Put(b, uint32(s.dir>>12))
	gf100.InstPDBHi.Put(b, uint32(s.dir>>32))
	gf100.InstLimitLo.Put(b, uint32(limit>>12))
	gf100.InstLimitHi.Put(b, uint32(limit>>32))
	r.vramWrite(inst, b)
	return inst
}

// flush invalidates all translations and waits as a driver does.
func (r *rig) flush() {
	r.t.Helper()
	r.wr(0x100cb8, 0)
	r.wr(0x100cbc, 1<<31|3)
	r.eventually("invalidate done", func() bool { return r.rd(0x100c80)&(1<<15) != 0 })
}

// bar1 maps the poll area and returns where it lies in VRAM.
func (r *rig) bar1() uint64 {
	s := r.newSpace()
	area := r.alloc(gf100.Channels * gf100.USERDSize)
	s.mapVRAM(userdBAR1, area, gf100.Channels*gf100.USERDSize)
	r.wr(0x1704, 1<<31|uint32(r.instance(s, 128<<20-1)>>12))
	return area
}
