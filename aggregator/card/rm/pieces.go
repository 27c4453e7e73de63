package rm

import (
	"slices"
	"sort"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// piece is a range of a space that lies together in one object, mapped by one call of the driver or what is left of that.
type piece struct {
	va, size uint64
	addr     uint64 // of the card's memory, or of the bus
	off      uint64 // in the object
	object   uint32 // noObject: nothing is mapped on the card
	page     uint32
	flags    shadowpt.Flags
	kind     uint8
	bus      bool
	depth    uint8 // how often a part of it was unmapped
}

func (p *piece) end() uint64 { return p.va + p.size }

// part returns the n bytes of the piece at va.
func (p piece) part(va, n uint64) piece {
	d := va - p.va
	p.va, p.size, p.addr, p.off = va, n, p.addr+d, p.off+d
	return p
}

// continues reports whether q goes on where p ends.
func (p *piece) continues(q *piece) bool {
	next := p.part(p.end(), q.size)
	return next == *q
}

// pieces are disjoint pieces by address, in chunks so that a change moves few of them.
type pieces struct {
	chunks [][]piece // none is empty
}

const mostInChunk = 256

// from returns where the first piece is that ends after va.
func (s *pieces) from(va uint64) (c, i int) {
	c = sort.Search(len(s.chunks), func(c int) bool { l := s.chunks[c]; return l[len(l)-1].end() > va })
	if c < len(s.chunks) {
		l := s.chunks[c]
		i = sort.Search(len(l), func(i int) bool { return l[i].end() > va })
	}
	return c, i
}

// at returns the piece that holds va, or nil.
func (s *pieces) at(va uint64) *piece {
	c, i := s.from(va)
	if c == len(s.chunks) || s.chunks[c][i].va > va {
		return nil
	}
	return &s.chunks[c][i]
}

// overlap appends the pieces that have an address in a range to list.
func (s *pieces) overlap(list []piece, va, end uint64) []piece {
	for c, i := s.from(va); c < len(s.chunks); c, i = c+1, 0 {
		for l := s.chunks[c]; i < len(l); i++ {
			if l[i].va >= end {
				return list
			}
			list = append(list, l[i])
		}
	}
	return list
}

// each calls f with all pieces.
func (s *pieces) each(f func(*piece)) {
	for _, l := range s.chunks {
		for i := range l {
			f(&l[i])
		}
	}
}

// add adds a piece where none is.
func (s *pieces) add(p piece) {
	c, i := s.from(p.va)
	if c == len(s.chunks) {
		if c == 0 {
			s.chunks = [][]piece{{p}}
			return
		}
		c--
		i = len(s.chunks[c])
	}
	l := slices.Insert(s.chunks[c], i, p)
	s.chunks[c] = l
	if len(l) > mostInChunk {
		half := len(l) / 2
		if i == len(l)-1 { // they come in ascending order: leave full ones behind
			half = i
		}
		s.chunks = slices.Insert(s.chunks, c+1, slices.Clone(l[half:]))
		s.chunks[c] = l[:half:half]
	}
}

// remove removes the piece that begins at va.
func (s *pieces) remove(va uint64) {
	c, i := s.from(va)
	if s.chunks[c] = slices.Delete(s.chunks[c], i, i+1); len(s.chunks[c]) == 0 {
		s.chunks = slices.Delete(s.chunks, c, c+1)
	}
}
