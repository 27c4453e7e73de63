package shadowpt_test

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// space is an address space of a card without tables: pages by address. It demands that changes are
// exact: no page over another, none unmapped that is not there, and nothing replaced by the same.
type space struct {
	t      reporter
	sizes  []uint64
	pages  map[pageAt]shadowpt.Page
	inside map[pageAt]int // how many smaller pages are in the range of a size

	// Parts of a space, as large as the tables of one directory entry, that the card refuses; and how
	// many it has memory for, if not 0.
	part  uint64
	holes map[uint64]bool
	parts map[uint64]int
	room  int

	changes, refused int
}

// pageAt is the place of a page: an address, and an index of sizes.
type pageAt struct {
	va   uint64
	size int
}

func newSpace(t reporter, f *shadowpt.Format) *space {
	s := &space{t: t, part: f.Dirs[len(f.Dirs)-1].Span(), pages: make(map[pageAt]shadowpt.Page), inside: make(map[pageAt]int), parts: make(map[uint64]int)}
	for _, l := range []shadowpt.Level{f.Pages[1], f.Pages[0]} {
		s.sizes = append(s.sizes, l.Span())
	}
	for i := len(f.Dirs) - 1; i >= 0; i-- {
		s.sizes = append(s.sizes, f.Dirs[i].Span())
	}
	return s
}

func (s *space) place(va uint64, size int) pageAt { return pageAt{va &^ (s.sizes[size] - 1), size} }

var errHole = errors.New("a hole")

func (s *space) Apply(list []shadowpt.Change) (int, error) {
	for i := range list {
		c := &list[i]
		s.changes++
		require.NotZero(s.t, c.Size)
		require.Zero(s.t, c.VA%c.Page|c.Size%c.Page)
		if err := s.refuse(c); err != nil {
			s.refused++
			if c.Flags&shadowpt.Over != 0 {
				s.each(c, func(at pageAt, _ shadowpt.Page) { s.unmap(at) })
			}
			return i, err
		}
		s.each(c, func(at pageAt, now shadowpt.Page) {
			was, mapped := s.pages[at]
			over := c.Flags&shadowpt.Over != 0
			switch {
			case c.Unmaps() && mapped:
				s.unmap(at)
				return
			case c.Unmaps() || mapped != over || was == now || s.inside[at] != 0 || s.below(at):
				require.Fail(s.t, "not exact", "%+v at %#x: %+v is there", c, at.va, was)
			}
			if s.pages[at] = now; !over {
				s.count(at, 1)
			}
		})
	}
	return len(list), nil
}

func (s *space) each(c *shadowpt.Change, f func(pageAt, shadowpt.Page)) {
	size := 0
	for s.sizes[size] != c.Page {
		size++
	}
	for i := range c.Pages() {
		va := c.VA + i*c.Page
		f(pageAt{va, size}, shadowpt.Page{VA: va, Size: c.Page, PTE: c.PTE(i)})
	}
}

// below reports whether a larger page is there.
func (s *space) below(at pageAt) bool {
	for size := at.size + 1; size < len(s.sizes); size++ {
		if _, ok := s.pages[s.place(at.va, size)]; ok {
			return true
		}
	}
	return false
}

func (s *space) unmap(at pageAt) {
	delete(s.pages, at)
	s.count(at, -1)
}

func (s *space) count(at pageAt, by int) {
	for size := at.size + 1; size < len(s.sizes); size++ {
		in := s.place(at.va, size)
		if s.inside[in] += by; s.inside[in] == 0 {
			delete(s.inside, in)
		}
	}
	if s.sizes[at.size] < s.part {
		if s.parts[at.va/s.part] += by; s.parts[at.va/s.part] == 0 {
			delete(s.parts, at.va/s.part)
		}
	}
}

func (s *space) refuse(c *shadowpt.Change) error {
	if c.Unmaps() || c.Page > s.part {
		return nil
	}
	more := 0
	for part := c.VA / s.part; part <= (c.VA+c.Size-1)/s.part; part++ {
		if s.holes[part] {
			return errHole
		}
		if s.parts[part] == 0 {
			more++
		}
	}
	if s.room != 0 && c.Page < s.part && len(s.parts)+more > s.room {
		return shadowpt.ErrTables
	}
	return nil
}

// walk looks va up as the card does.
func (s *space) walk(va uint64) (p shadowpt.Page, ok bool) {
	for size := range s.sizes {
		if p, ok = s.pages[s.place(va, size)]; ok {
			return p, true
		}
	}
	return p, false
}
