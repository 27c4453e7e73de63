package shadowpt

// Watch knows which pages of a guest's VRAM hold tables that are shadowed, and
// which of those may have changed since a [Tracker] looked at them. It is the
// part of a Tracker that others than its owner may call: any goroutine, without
// a lock.
//
// A table is put into the sets before it is read, and a write is made before it
// is told of, so that of a write and a look at the same page either the look
// sees the write, or the page is looked at again.
type Watch struct {
	pages  uint64
	tables pageSet // pages that a Tracker follows
	dirty  pageSet // of tables: written since the last look
	// direct pages are written by the guest without anybody being told.
	direct pageSet
	// loose are tables that may change unseen: they are in direct, or engines of
	// the card may write them. They are compared at each look. Pages are put in by
	// anybody and taken out by the Tracker.
	loose pageSet
}

func newWatch(vram uint64) Watch {
	n := (vram + SmallPage - 1) / SmallPage
	return Watch{pages: n, tables: newPageSet(n), dirty: newPageSet(n), direct: newPageSet(n), loose: newPageSet(n)}
}

// Wrote tells that n bytes of the guest's VRAM at addr have been written. It
// reports whether a table lies there. What lies outside the VRAM is nobody's.
func (w *Watch) Wrote(addr, n uint64) (table bool) {
	if n == 0 || addr/SmallPage >= w.pages {
		return false
	}
	first, last := addr/SmallPage, min((addr+n-1)/SmallPage, w.pages-1)
	if last-first > 64 {
		return w.wroteMany(first, last)
	}
	for p := first; p <= last; p++ {
		if w.tables.has(p) {
			w.dirty.add(p)
			table = true
		}
	}
	return table
}

// wroteMany is Wrote for so many pages that most words of the set are passed
// over.
func (w *Watch) wroteMany(first, last uint64) (table bool) {
	for p := first; p <= last; {
		if p%64 == 0 && w.tables.levels[0][p/64].Load() == 0 {
			p += 64
			continue
		}
		if w.tables.has(p) {
			w.dirty.add(p)
			table = true
		}
		p++
	}
	return table
}

// Untrapped tells whether the guest writes n bytes of its VRAM at addr, whole
// pages, without Wrote being called: on before the first such write can happen,
// off after the last one has.
func (w *Watch) Untrapped(addr, n uint64, on bool) {
	for p := addr / SmallPage; p < min((addr+n+SmallPage-1)/SmallPage, w.pages); p++ {
		if !on {
			// The page stays in loose, for a last comparison.
			w.direct.remove(p)
			continue
		}
		w.direct.add(p)
		if w.tables.has(p) {
			w.loose.add(p)
		}
	}
}
