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

// relink notes that the entries that name a node are to be written.
func (s *Shadow) relink(n *node) {
	for dir, in := range n.slots {
		dir.changed.addAll(in.set)
		s.markDirty(dir)
	}
}

// writeDirs writes the changed entries of directories and drops nodes that no entry names. It
// goes upwards: a table that is allocated changes the entries above it.
func (t *Tracker) writeDirs(s *Shadow) {
	for level := len(t.format.Dirs) - 1; level >= 0; level-- {
		for i := 0; i < len(s.dirty[level]); i++ {
			t.writeDir(s, s.dirty[level][i])
			s.dirty[level][i] = nil
		}
		s.dirty[level] = s.dirty[level][:0]
	}
	s.out.flush()
	for s.orphans {
		s.orphans = false
		for _, n := range s.nodes {
			if n.links == 0 {
				t.unhold(s, n)
				t.unlinkAll(s, n)
				s.drop(n)
				t.freed = true
			}
		}
	}
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
	key, l := s.resolve(n, t.words(n, i))
	behind := n.behind(i)
	if c := *behind; c != nil && c.key != key {
		t.unlink(s, c, n, i)
		*behind = nil
	}
	if key.level != 0 {
		if l.to = *behind; l.to == nil {
			l.to = t.linked(s, key, n, i)
			*behind = l.to
		}
	}
	s.out.link(n, i, l)
}

// linked returns the node of a key, linked to an entry and followed; nil if there are too many.
func (t *Tracker) linked(s *Shadow, key nodeKey, dir *node, i int) *node {
	n := s.node(key)
	if n == nil {
		dir.starved = true
		return nil
	}
	if !n.held {
		n.dirty = true // what it marks is written here, not later
		t.hold(s, n)
		t.writeDir(s, n)
	}
	in := n.slots[dir]
	if in == nil {
		in = &slots{set: newBitset(len(dir.changed) * 64)}
		if n.slots == nil {
			n.slots = make(map[*node]*slots)
		}
		n.slots[dir] = in
		t.work.nodes++
	}
	in.set.set(i, true)
	in.n++
	n.links++
	return n
}

// unlink is the reverse of linked.
func (t *Tracker) unlink(s *Shadow, n, dir *node, i int) {
	in := n.slots[dir]
	in.set.set(i, false)
	if in.n--; in.n == 0 {
		delete(n.slots, dir)
		t.work.nodes--
	}
	n.links--
	s.orphans = s.orphans || n.links == 0
}

// unlinkAll unlinks what a directory's entries name.
func (t *Tracker) unlinkAll(s *Shadow, dir *node) {
	for at, page := range dir.at {
		for i, n := range page {
			if n != nil {
				t.unlink(s, n, dir, at*pageEntries+i)
			}
		}
	}
	dir.at = nil
}

// behind returns the slot of a directory entry's node.
func (n *node) behind(i int) **node {
	at := &n.at[i/pageEntries]
	if *at == nil {
		*at = make([]*node, pageEntries)
	}
	return &(*at)[i%pageEntries]
}
