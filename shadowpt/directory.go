package shadowpt

import "math/bits"

// mark notes that an entry of a directory is to be written.
func (s *Shadow) mark(n *node, i int) {
	n.changed.set(i, true)
	s.markDirty(n)
}

func (s *Shadow) markDirty(n *node) {
	if !n.dirty {
		n.dirty = true
		s.dirty[n.key.level] = append(s.dirty[n.key.level], n)
	}
}

// writeDirs follows the changed entries of directories, from the last level up, and drops nodes that
// no entry names.
func (t *Tracker) writeDirs(s *Shadow) {
	for level := len(t.format.Dirs) - 1; level >= 0; level-- {
		for i := 0; i < len(s.dirty[level]); i++ {
			t.writeDir(s, s.dirty[level][i])
			s.dirty[level][i] = nil
		}
		s.dirty[level] = s.dirty[level][:0]
	}
	s.dropOrphans()
}

// writeDir writes the changed entries of one.
func (t *Tracker) writeDir(s *Shadow, n *node) {
	n.dirty = false
	for w, m := range n.changed {
		n.changed[w] = 0
		for ; m != 0; m &= m - 1 {
			t.writeEntry(s, n, w*64+bits.TrailingZeros64(m))
		}
	}
}

func (t *Tracker) writeEntry(s *Shadow, n *node, i int) {
	key, word := s.resolve(n, t.words(n, i))
	to := s.named(n, i, key)
	if to != nil && !to.held {
		if !s.linkFirst(n, i, to) {
			return
		}
		to.dirty = true // what it marks is written here, not later
		t.hold(s, to)
		t.writeDir(s, to)
	}
	s.link(n, i, to, word)
}
