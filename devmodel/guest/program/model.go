package program

import (
	"github.com/umbra-gpu/umbra/devmodel/guest"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Model is what a program's memory must look like.
type Model struct {
	Buffers [][]byte
	Spaces  []*SpaceModel
	chans   []ChannelSpec
	specs   []BufferSpec
}

// SpaceModel has the state of each virtual page. A large page hides the small ones.
type SpaceModel struct {
	small, big map[uint64]Page // by page number
}

// Page is a piece of a buffer.
type Page struct {
	Buf                  int
	Off                  uint64
	ReadOnly, Supervisor bool
}

// NewModel returns the memory that p starts with.
func NewModel(p *Program) *Model {
	m := &Model{chans: p.Channels, specs: p.Buffers}
	for _, b := range p.Buffers {
		m.Buffers = append(m.Buffers, noise(b.Seed, b.Size))
	}
	for range p.Spaces {
		m.Spaces = append(m.Spaces, &SpaceModel{small: map[uint64]Page{}, big: map[uint64]Page{}})
	}
	return m
}

func (s *SpaceModel) pages(f guest.Flags) (map[uint64]Page, uint64) {
	if f&guest.Big != 0 {
		return s.big, shadowpt.BigPage
	}
	return s.small, shadowpt.SmallPage
}

// At returns the page at va and the offset in its buffer.
func (s *SpaceModel) At(va uint64) (p Page, off uint64, ok bool) {
	if p, ok = s.big[va/shadowpt.BigPage]; ok {
		return p, p.Off + va%shadowpt.BigPage, true
	}
	p, ok = s.small[va/shadowpt.SmallPage]
	return p, p.Off + va%shadowpt.SmallPage, ok
}

// Check returns why an access of one byte at va must fault; ok if it must not. Without a
// mapping the reason is PageNotPresent, for any missing table.
func (s *SpaceModel) Check(va uint64, write bool) (r shadowpt.Reason, ok bool) {
	p, _, ok := s.At(va)
	switch {
	case !ok:
		return shadowpt.PageNotPresent, false
	case p.Supervisor:
		return shadowpt.PageSystemOnly, false
	case write && p.ReadOnly:
		return shadowpt.PageReadOnly, false
	}
	return 0, true
}

// run is a piece of a buffer.
type run struct {
	buf    int
	off, n uint64
}

// runs returns the memory of n bytes at va, false if any of it is not accessible.
func (s *SpaceModel) runs(va, n uint64, write bool) (rs []run, ok bool) {
	for n > 0 {
		if _, ok := s.Check(va, write); !ok {
			return nil, false
		}
		p, off, _ := s.At(va)
		k := min(n, shadowpt.SmallPage-va%shadowpt.SmallPage)
		rs = append(rs, run{p.Buf, off, k})
		va, n = va+k, n-k
	}
	return rs, true
}

func overlap(a, b []run) bool {
	for i := range a {
		for k := range b {
			if a[i].touches(b[k]) {
				return true
			}
		}
	}
	return false
}

func (r run) touches(o run) bool { return r.buf == o.buf && r.off < o.off+o.n && o.off < r.off+r.n }

func selfOverlap(a []run) bool {
	for i := range a {
		for k := range i {
			if a[i].touches(a[k]) {
				return true
			}
		}
	}
	return false
}

// Apply does an operation.
func (m *Model) Apply(o Op) {
	switch o.Kind {
	case Write, Store:
		copy(m.Buffers[o.Buf][o.Off:][:o.N], noise(o.Seed, o.N))
	case Map:
		m.mapPages(o)
	case Unmap:
		pages, size := m.Spaces[o.Space].pages(o.Flags)
		for i := uint64(0); i < o.N/size; i++ {
			delete(pages, o.VA/size+i)
		}
	case Copy:
		s := m.Spaces[m.chans[o.Chan].Space]
		from, _ := s.runs(o.Src, o.N, false)
		m.store(s, o.Dst, m.load(from))
	case Inline:
		m.store(m.Spaces[m.chans[o.Chan].Space], o.Dst, noise(o.Seed, o.N))
	case Read, Fault, Recreate: // change nothing
	}
}

func (m *Model) mapPages(o Op) {
	pages, size := m.Spaces[o.Space].pages(o.Flags)
	for i := uint64(0); i < o.N/size; i++ {
		pages[o.VA/size+i] = Page{
			Buf: o.Buf, Off: o.Off + i*size,
			ReadOnly: o.Flags&guest.ReadOnly != 0, Supervisor: o.Flags&guest.Supervisor != 0,
		}
	}
}

func (m *Model) load(rs []run) (p []byte) {
	for _, r := range rs {
		p = append(p, m.Buffers[r.buf][r.off:][:r.n]...)
	}
	return p
}

func (m *Model) store(s *SpaceModel, va uint64, p []byte) {
	to, _ := s.runs(va, uint64(len(p)), true)
	for _, r := range to {
		p = p[copy(m.Buffers[r.buf][r.off:][:r.n], p):]
	}
}
