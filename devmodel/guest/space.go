package guest

import (
	"errors"
	"fmt"

	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Flags define how pages are mapped.
type Flags uint32

const (
	Small Flags = 0         // 4 KiB pages
	Big   Flags = 1 << iota // 128 KiB pages, of VRAM only
	ReadOnly
	Supervisor
	Volatile
	NonCoherent // of RAM
)

// Space is a GPU address space: a directory and its tables in VRAM.
type Space struct {
	g      *Guest
	dir    *Buffer
	limit  uint64
	tables map[uint64]*tables // by directory entry
	shared bool               // the directory is another Space's
	chans  int                // channels that use it
	fixed  map[uint64]bool    // the driver's own mappings, by VA
}

type tables struct{ big, small *Buffer }

const userLimit = shadowpt.VASize - 1

// NewSpace makes an empty address space of 40 bits.
func (g *Guest) NewSpace() (*Space, error) { return g.newSpace(userLimit) }

func (g *Guest) newSpace(limit uint64) (*Space, error) {
	dir, err := g.newInstance(shadowpt.DirSize)
	if err != nil {
		return nil, err
	}
	return &Space{g: g, dir: dir, limit: limit, tables: map[uint64]*tables{}, fixed: map[uint64]bool{}}, nil
}

// View returns a space with the same directory and another limit, the last valid
// address. It is good for channels; mappings are made in the space it is a view of.
func (s *Space) View(limit uint64) *Space {
	return &Space{g: s.g, dir: s.dir, limit: limit, tables: s.tables, shared: true, fixed: s.fixed}
}

// Directory returns the VRAM address of the directory.
func (s *Space) Directory() uint64 { return s.dir.Addr }

// Table returns the VRAM addresses of the tables that cover va, 0 for none.
func (s *Space) Table(va uint64) (big, small uint64) {
	t := s.tables[va/shadowpt.DirSpan]
	if t == nil {
		return 0, 0
	}
	if t.big != nil {
		big = t.big.Addr
	}
	if t.small != nil {
		small = t.small.Addr
	}
	return big, small
}

// Map maps all of b at va.
func (s *Space) Map(va uint64, b *Buffer, f Flags) error { return s.MapPart(va, b, 0, b.Size, f) }

// MapPart maps n bytes of b from off at va.
func (s *Space) MapPart(va uint64, b *Buffer, off, n uint64, f Flags) error {
	target := shadowpt.VRAM
	if b.RAM {
		target = ramTarget(f)
	}
	return s.MapAddr(va, target, b.Addr+off, n, f)
}

func ramTarget(f Flags) shadowpt.Target {
	if f&NonCoherent != 0 {
		return shadowpt.SystemNonCoherent
	}
	return shadowpt.SystemCoherent
}

// MapAddr maps n bytes at any address of any memory at va, and invalidates.
func (s *Space) MapAddr(va uint64, t shadowpt.Target, addr, n uint64, f Flags) error {
	page := pageOf(f)
	if va%page != 0 || addr%page != 0 || n%page != 0 || n == 0 {
		return fmt.Errorf("guest: map %d bytes of %#x at VA %#x: not whole pages of %d bytes", n, addr, va, page)
	}
	err := s.Put(va, n, f&Big != 0, func(i uint64) uint64 {
		return shadowpt.PTE{
			Valid: true, Target: t, Addr: addr + i*page,
			ReadOnly: f&ReadOnly != 0, Supervisor: f&Supervisor != 0, Volatile: f&Volatile != 0,
		}.Encode()
	})
	if err != nil {
		return err
	}
	return s.Invalidate()
}

// Unmap takes away what is mapped in n bytes at va with pages of the size in f,
// and invalidates.
func (s *Space) Unmap(va, n uint64, f Flags) error {
	if err := s.Put(va, n, f&Big != 0, func(uint64) uint64 { return 0 }); err != nil {
		return err
	}
	return s.Invalidate()
}

func pageOf(f Flags) uint64 {
	if f&Big != 0 {
		return shadowpt.BigPage
	}
	return shadowpt.SmallPage
}

// Put writes the entries of n bytes at va, without an invalidate: entry gives the
// i-th. Tables that are missing are made.
func (s *Space) Put(va, n uint64, big bool, entry func(i uint64) uint64) error {
	page := uint64(shadowpt.SmallPage)
	if big {
		page = shadowpt.BigPage
	}
	if va+n > shadowpt.VASize || va+n < va {
		return fmt.Errorf("guest: %d bytes at VA %#x leave the address space", n, va)
	}
	for i := uint64(0); i < n/page; {
		at := va + i*page
		o, err := s.table(at/shadowpt.DirSpan, big)
		if err != nil {
			return err
		}
		slot := at % shadowpt.DirSpan / page
		run := min(n/page-i, shadowpt.DirSpan/page-slot)
		raw := make([]byte, 0, run*8)
		for k := range run {
			raw = le.AppendUint64(raw, entry(i+k))
		}
		if err := o.Write(slot*8, raw); err != nil {
			return err
		}
		i += run
	}
	return s.g.bus.failed()
}

// table returns a table of directory entry d, made if it is not there.
func (s *Space) table(d uint64, big bool) (*Buffer, error) {
	t := s.tables[d]
	if t == nil {
		t = &tables{}
		s.tables[d] = t
	}
	o, size := &t.small, uint64(shadowpt.SmallTableSize)
	if big {
		o, size = &t.big, shadowpt.BigTableSize
	}
	if *o == nil {
		made, err := s.g.newInstance(size)
		if err != nil {
			return nil, err
		}
		*o = made
		return made, s.dir.Write(d*8, le.AppendUint64(nil, t.pde()))
	}
	return *o, nil
}

func (t *tables) pde() uint64 {
	var p shadowpt.PDE
	if t.big != nil {
		p.Big = shadowpt.Table{Present: true, Addr: t.big.Addr}
	}
	if t.small != nil {
		p.Small = shadowpt.Table{Present: true, Addr: t.small.Addr}
	}
	return p.Encode()
}

// PDE reads a directory entry back.
func (s *Space) PDE(d uint64) uint64 {
	var b [8]byte
	if s.dir.Read(d*8, b[:]) != nil {
		return 0
	}
	return le.Uint64(b[:])
}

// Invalidate ends a change of tables: the writes land, then the GPU drops cached
// translations of this directory.
func (s *Space) Invalidate() error { return s.g.invalidate(s.dir.Addr) }

func (g *Guest) invalidate(dir uint64) error {
	g.wr32(uflushFlush, flushStart)
	if err := g.poll("the flush of host writes", uflushFlush, flushBusy, 0); err != nil {
		return err
	}
	if err := g.pollFor("room for an invalidate", mmuCtrl, func(v uint32) bool { return v&mmuSpace != 0 }); err != nil {
		return err
	}
	g.wr32(mmuPDB, uint32(dir>>12<<4))
	g.wr32(mmuInvalidate, invalidateAll|1)
	return g.poll("the invalidate", mmuCtrl, mmuDone, mmuDone)
}

// Free gives the directory and the tables back. No channel may use the space.
func (s *Space) Free() error {
	if s.shared {
		return nil
	}
	for _, t := range s.tables {
		for _, o := range []*Buffer{t.big, t.small} {
			if o == nil {
				continue
			}
			if err := o.Free(); err != nil {
				return err
			}
		}
	}
	s.tables = nil
	return s.dir.Free()
}

// describe writes the space to an instance block.
func (s *Space) describe(block []byte) {
	gf100.InstPDBLo.Put(block, uint32(s.dir.Addr>>12))
	gf100.InstPDBHi.Put(block, uint32(s.dir.Addr>>32))
	gf100.InstLimitLo.Put(block, uint32(s.limit>>12))
	gf100.InstLimitHi.Put(block, uint32(s.limit>>32))
	// The low bits of the limit are all ones, as drivers write it.
	le.PutUint32(block[gf100.InstLimitLo.Offset:], le.Uint32(block[gf100.InstLimitLo.Offset:])|0xfff)
}

// window is BAR1 or BAR3, with an address space of its own.
type window struct {
	g     *Guest
	space *Space
	inst  *Buffer
	va    *heap
}

// newWindow builds a BAR's tables and switches it on.
func (g *Guest) newWindow(size uint64, block uint32) (*window, error) {
	s, err := g.newSpace(size - 1)
	if err != nil {
		return nil, err
	}
	inst, err := g.newInstance(gf100.InstanceSize)
	if err != nil {
		return nil, err
	}
	// The table is there before the window is on: to make it later would need
	// the window itself.
	for d := uint64(0); d*shadowpt.DirSpan < size; d++ {
		if _, err := s.table(d, false); err != nil {
			return nil, err
		}
	}
	raw := make([]byte, gf100.InstanceSize)
	s.describe(raw)
	at := uint64(gf100.InstPDBLo.Offset)
	if err := errors.Join(inst.Write(at, raw[at:][:16]), s.Invalidate()); err != nil {
		return nil, err
	}
	g.wr32(block, blockOn|uint32(inst.Addr>>12))
	return &window{g: g, space: s, inst: inst, va: newHeap(0, size)}, g.bus.failed()
}

// show maps n bytes of VRAM and returns where the window has them.
func (w *window) show(addr, n uint64) (uint64, error) {
	va, _, ok := w.va.alloc(n, pageSize, false)
	if !ok {
		return 0, fmt.Errorf("guest: no room for %d bytes in a BAR", n)
	}
	return va, w.space.MapAddr(va, shadowpt.VRAM, addr, n, Small)
}

func (w *window) hide(va, n uint64) error {
	w.va.release(va, n)
	return w.space.Unmap(va, n, Small)
}
