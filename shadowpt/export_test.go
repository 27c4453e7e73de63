package shadowpt

// LineSize is what a write marks at least of a page.
const LineSize = lineSize

// MaxAddrs is how many pages a change lists.
const MaxAddrs = maxAddrs

// Heed makes a page of the guest's one that tables lie in; Written takes the lines of it
// that were marked since.
func (t *Tracker) Heed(page uint64)           { t.tables.add(page) }
func (t *Tracker) Written(page uint64) uint64 { return t.written(page) }

// UpdateAll is Update for all shadows.
func (t *Tracker) UpdateAll() { t.Update(t.shadows...) }

// Entry translates a guest's page entry.
func (s *Shadow) Entry(q, page uint64) PTE {
	c := mapping(s.entry(q, page))
	return c.PTE(0)
}

// Asked are what is asked of entries without taking them apart: whether one names the
// guest's system memory, and whether engines may write VRAM through it.
func (f *Format) Asked(q uint64) (system, writes bool) {
	return f.namesSystem(q) != 0, q&f.writable == f.valid
}

// Nodes is how many nodes a shadow has besides its root.
func (s *Shadow) Nodes() int { return len(s.nodes) }

// Used is what the shadows of a Work take of its bounds.
func (w *Work) Used() (nodes int, placed uint64) { return w.nodes, w.placed }
