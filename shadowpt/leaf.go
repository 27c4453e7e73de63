package shadowpt

import (
	"bytes"
	"encoding/binary"
)

const (
	pageEntries = SmallPage / 8
	pagesOf4KiB = SmallTableSize / SmallPage // of the largest table
)

var zeroPage [SmallPage]byte

// leaf is one page of guest memory that holds tables, with its bytes as last seen. Any
// number of tables and directories may include the page.
type leaf struct {
	key  leafKey
	seen *[SmallPage]byte // nil: all zero
	refs []leafRef
	// system counts the entries that name system memory when read as page entries.
	system int
	scan   uint64 // Tracker.scan of the last look
	lost   bool   // no longer the guest's
}

// leafKey is a page number, and whether it is in system memory.
type leafKey struct {
	page   uint64
	system bool
}

func (k leafKey) target() Target {
	if k.system {
		return SystemCoherent
	}
	return VRAM
}

// leafRef is the part of one table that a page holds: count entries from first on.
type leafRef struct {
	s     *Shadow
	n     *node // nil: the directory
	big   bool
	first int
	count int
}

// held is a table's end of a leafRef.
type held struct {
	l  *leaf
	at int // of the reference in l.refs
}

// tracked is a Tracker's state of a node.
type tracked struct {
	key                  nodeKey
	held                 bool // the node's tables are followed
	guestSmall, guestBig []held
	slots                entrySet // directory entries that name the node
	links                int      // how many
	redo                 bool     // in Tracker.again
}

func (l *leaf) bytes() []byte {
	if l.seen == nil {
		return zeroPage[:]
	}
	return l.seen[:]
}

func (l *leaf) entry(i int) uint64 {
	if l.seen == nil {
		return 0
	}
	return binary.LittleEndian.Uint64(l.seen[i*8:])
}

// fill records the page's bytes.
func (l *leaf) fill(p []byte) {
	l.system = 0
	if l.seen == nil {
		if bytes.Equal(p, zeroPage[:]) {
			return
		}
		l.seen = new([SmallPage]byte)
	}
	copy(l.seen[:], p)
	for i := range pageEntries {
		l.system += namesSystem(l.entry(i))
	}
}

// namesSystem is 1 for a page entry that names system memory, else 0.
func namesSystem(q uint64) int {
	if q&valid != 0 && q&inSystem != 0 {
		return 1
	}
	return 0
}

// entryAt returns the guest's entry i of a table, 0 if the table is not followed.
func entryAt(pages []held, i int) uint64 {
	if pages == nil {
		return 0
	}
	return pages[i/pageEntries].l.entry(i % pageEntries)
}

// addRef records that a table includes the page.
func (l *leaf) addRef(r leafRef) held {
	l.refs = append(l.refs, r)
	return held{l, len(l.refs) - 1}
}

// removeRef is the reverse of addRef. The last reference moves into the free place.
func (h held) removeRef() {
	l, last := h.l, len(h.l.refs)-1
	if h.at != last {
		l.refs[h.at] = l.refs[last]
		l.refs[h.at].pages()[l.refs[h.at].first/pageEntries].at = h.at
	}
	l.refs[last] = leafRef{}
	l.refs = l.refs[:last]
}

// pages returns the pages of the reference's table.
func (r *leafRef) pages() []held {
	switch {
	case r.n == nil:
		return r.s.pages
	case r.big:
		return r.n.guestBig
	}
	return r.n.guestSmall
}
