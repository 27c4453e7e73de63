package driver

import (
	"math/bits"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/vram"
)

// retireEmpty takes the tables without entries out of their directories.
func (s *space) retireEmpty() {
	for i := 0; i < len(s.emptied); i++ { // it grows: the directory may be empty, too
		if t := s.emptied[i]; t.set == 0 && t.up != nil {
			s.detach(t)
		}
	}
	clear(s.emptied)
	s.emptied = s.emptied[:0]
}

// detach takes a table out of its directory.
func (s *space) detach(t *table) {
	up := t.up
	t.up, up.kids[t.part][t.at] = nil, nil
	s.retired = append(s.retired, t)
	s.link(up, t.at)
	if up.kid(t.at, 1-t.part) == nil {
		if up.set--; up.set == 0 {
			s.emptied = append(s.emptied, up)
		}
	}
}

// giveBackFresh frees the tables of a change that does not fit. No walk was inside.
func (s *space) giveBackFresh() {
	for _, t := range slices.Backward(s.fresh) {
		if t.up.kids[t.part][t.at] = nil; t.up.kid(t.at, 1-t.part) == nil {
			t.up.set--
		}
		s.free(t)
	}
	s.forgetFresh()
}

func (s *space) forgetFresh() {
	clear(s.fresh)
	s.fresh = s.fresh[:0]
}

// freeRetired frees the tables that were retired before an invalidate that has completed.
func (s *space) freeRetired() {
	for _, t := range s.retired {
		s.free(t)
	}
	clear(s.retired)
	s.retired = s.retired[:0]
}

// Free implements card.Space.
func (s *space) Free() {
	s.freeRetired()
	s.freeAll(s.root)
}

func (s *space) freeAll(t *table) {
	for _, kids := range t.kids {
		for _, k := range kids {
			if k != nil {
				s.freeAll(k)
			}
		}
	}
	s.free(t)
}

var zeroPage [vram.PageSize]byte

func (s *space) free(t *table) {
	for m := t.written; m != 0; m &= m - 1 {
		s.memory.write(t.addr+uint64(bits.TrailingZeros64(m))*vram.PageSize, zeroPage[:])
	}
	s.memory.giveBack(t.addr, t.level.Size())
}
