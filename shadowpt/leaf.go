package shadowpt

import (
	"bytes"
	"encoding/binary"
)

const pageEntries = SmallPage / 8 // words of a page

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

// leafRef is the part of one table that a page holds: count words of the table from first on,
// which are those of the page from base on.
type leafRef struct {
	s                  *Shadow
	n                  *node
	part               int
	base, first, count int
}

// held is a table's end of a leafRef.
type held struct {
	l        *leaf
	at, base int // of the reference in l.refs; of the table's words in the page
}

// tracked is a Tracker's state of a node.
type tracked struct {
	held  bool // the node's tables are followed
	guest [2][]held
	redo  bool // in Tracker.again

	// Of a directory.
	changed bitset // entries
	dirty   bool   // some are set; the node is in Shadow.dirty
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
func (l *leaf) fill(f *Format, p []byte) {
	l.system = 0
	if l.seen == nil {
		if bytes.Equal(p, zeroPage[:]) {
			return
		}
		l.seen = new([SmallPage]byte)
	}
	copy(l.seen[:], p)
	for i := range pageEntries {
		l.system += f.namesSystem(l.entry(i))
	}
}

// wordAt returns the guest's word i of a table, 0 if the table is not followed.
func wordAt(pages []held, i int) uint64 {
	if pages == nil {
		return 0
	}
	h := &pages[i/pageEntries]
	return h.l.entry(h.base + i%pageEntries)
}

// addRef records that a table includes the page.
func (l *leaf) addRef(r leafRef) held {
	l.refs = append(l.refs, r)
	return held{l, len(l.refs) - 1, r.base}
}

// removeRef is the reverse of addRef. The last reference moves into the free place.
func (h held) removeRef() {
	l, last := h.l, len(h.l.refs)-1
	if h.at != last {
		r := &l.refs[h.at]
		*r = l.refs[last]
		r.n.guest[r.part][r.first/pageEntries].at = h.at
	}
	l.refs[last] = leafRef{}
	l.refs = l.refs[:last]
}
