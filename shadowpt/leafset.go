package shadowpt

import "iter"

// leafSet finds leaves by page. VRAM uses a two-level array, because every write to a table
// looks one up.
type leafSet struct {
	vram   []*leafChunk
	system map[uint64]*leaf
}

const chunkPages = 512

type leafChunk struct {
	n      int // leaves in use
	leaves [chunkPages]*leaf
}

func newLeafSet(pages uint64) leafSet {
	return leafSet{make([]*leafChunk, (pages+chunkPages-1)/chunkPages), make(map[uint64]*leaf)}
}

// inVRAM returns the leaf of a page of VRAM, nil if it is not followed.
func (s *leafSet) inVRAM(page uint64) *leaf {
	if c := s.vram[page/chunkPages]; c != nil {
		return c.leaves[page%chunkPages]
	}
	return nil
}

func (s *leafSet) get(key leafKey) *leaf {
	switch {
	case key.system:
		return s.system[key.page]
	case key.page/chunkPages >= uint64(len(s.vram)):
		return nil
	}
	return s.inVRAM(key.page)
}

// put adds a leaf for a page that has none.
func (s *leafSet) put(l *leaf) {
	if l.key.system {
		s.system[l.key.page] = l
		return
	}
	c := &s.vram[l.key.page/chunkPages]
	if *c == nil {
		*c = new(leafChunk)
	}
	(*c).n++
	(*c).leaves[l.key.page%chunkPages] = l
}

// remove removes a leaf of the set.
func (s *leafSet) remove(l *leaf) {
	if l.key.system {
		delete(s.system, l.key.page)
		return
	}
	c := &s.vram[l.key.page/chunkPages]
	(*c).leaves[l.key.page%chunkPages] = nil
	if (*c).n--; (*c).n == 0 {
		*c = nil
	}
}

// all yields the leaves in any order.
func (s *leafSet) all() iter.Seq[*leaf] {
	return func(yield func(*leaf) bool) {
		for _, c := range s.vram {
			if c == nil {
				continue
			}
			for _, l := range c.leaves {
				if l != nil && !yield(l) {
					return
				}
			}
		}
		for _, l := range s.system {
			if !yield(l) {
				return
			}
		}
	}
}
