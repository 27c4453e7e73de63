package shadowpt

import (
	"encoding/binary"
	"math/bits"
)

// sink takes what a shadow's nodes become. Entries are translated and checked, in the format of
// the guest. A node hangs where the directory entries are that name it (tracked.slots).
type sink interface {
	// fill replaces the entries of a node's table. It reports whether there is room for them.
	fill(n *node, part int, entries *sheet) bool
	// page sets one entry of it. It reports whether there is room for such.
	page(n *node, part, i int, q uint64) bool
	// link sets a directory entry.
	link(n *node, i int, l link)
	// flush ends a series of calls.
	flush()
	// drop ends a node. What it held is freed by release.
	drop(n *node)
	release()
	// retired reports whether a release would free anything.
	retired() bool
}

// encoder is the sink that writes tables of the guest's format into the card's memory.
type encoder struct {
	card Card
	s    *Shadow
	// old are tables that the card may still be walking.
	old []cardTable
}

// cardTable is a table of the card's.
type cardTable struct {
	addr, size uint64 // addr 0: no table
	// used are its pages that may be nonzero.
	used pageMask
}

// burst collects adjacent words of one table for one write to the card.
type burst struct {
	table *cardTable
	first int
	buf   []byte
}

// add appends a word. If it is not adjacent, or the burst is full, it writes the burst first.
func (e *encoder) add(part int, table *cardTable, i int, q uint64) {
	b := &e.s.work.bursts[part]
	if len(b.buf) == cap(b.buf) || table != b.table || i != b.first+len(b.buf)/8 {
		e.write(b)
		b.table, b.first = table, i
	}
	b.buf = binary.LittleEndian.AppendUint64(b.buf, q)
}

func (e *encoder) write(b *burst) {
	if n := len(b.buf) / 8; n > 0 {
		e.card.WriteTable(b.table.addr+uint64(b.first)*8, b.buf)
		b.table.used.add(b.first / pageEntries)
		b.table.used.add((b.first + n - 1) / pageEntries)
		e.s.Counts.Rewritten += uint64(n)
	}
	b.buf = b.buf[:0]
}

func (e *encoder) flush() {
	e.write(&e.s.work.bursts[small])
	e.write(&e.s.work.bursts[big])
}

func (e *encoder) page(n *node, part, i int, q uint64) bool {
	if !e.ready(n, part, q) {
		return false
	}
	e.add(part, &n.tables[part], i, q)
	return true
}

// ready reports whether there is a table to write q to. It allocates one for a nonzero q,
// which changes the directory entries that name the node.
func (e *encoder) ready(n *node, part int, q uint64) bool {
	if n.tables[part].addr != 0 {
		return true
	}
	if q == 0 || n.starved || !e.room(n, part) {
		return false
	}
	e.s.relink(n)
	return true
}

func (e *encoder) link(n *node, i int, l link) {
	level := &e.s.format.Dirs[n.key.level]
	p := PDE{Page: l.page, Sparse: l.sparse}
	if l.to != nil {
		p = PDE{Size: l.to.key.size, Big: l.to.tables[big].place(), Small: l.to.tables[small].place()}
	}
	w := level.Encode(p)
	if !e.ready(n, small, w[0]|w[1]) {
		return
	}
	step := int(level.Words)
	for k, q := range w[:step] {
		e.add(small, &n.tables[small], i*step+k, q)
	}
}

func (t *cardTable) place() Table {
	return Table{Present: t.addr != 0, Target: VRAM, Addr: t.addr}
}

// fill writes entries into a table. The table is allocated for its first entry and kept
// until the node is dropped. Pages that are zero and stay zero are not written.
func (e *encoder) fill(n *node, part int, entries *sheet) bool {
	t := &n.tables[part]
	if t.addr == 0 && (entries.empty() || !e.room(n, part)) {
		return false
	}
	pages := entries.live | t.used
	t.used = pages
	for pages != 0 {
		first := bits.TrailingZeros64(uint64(pages))
		end := first + bits.TrailingZeros64(^uint64(pages>>first))
		b := e.s.work.buf[:(end-first)*SmallPage]
		for i, q := range entries.entries[first*pageEntries : end*pageEntries] {
			binary.LittleEndian.PutUint64(b[i*8:], q)
		}
		e.card.WriteTable(t.addr+uint64(first)*SmallPage, b)
		e.s.Counts.Rewritten += uint64(end-first) * pageEntries
		pages &^= 1<<end - 1
	}
	return true
}

// room allocates a table for the node, and notes it if it cannot.
func (e *encoder) room(n *node, part int) bool {
	if !e.alloc(n, part) {
		e.s.Counts.NoRoom++
		n.starved = true
		return false
	}
	return true
}

// alloc allocates a table in whole pages.
func (e *encoder) alloc(n *node, part int) bool {
	level := &e.s.format.Pages[part]
	if e.s.isDir(n) {
		level = &e.s.format.Dirs[n.key.level]
	}
	size := max(level.Size(), SmallPage)
	addr, ok := e.card.AllocTable(size)
	if ok {
		n.tables[part] = cardTable{addr: addr, size: size}
	}
	return ok
}

func (e *encoder) drop(n *node) {
	for i := range n.tables {
		if n.tables[i].addr != 0 {
			e.old = append(e.old, n.tables[i])
		}
	}
}

func (e *encoder) release() {
	for i := range e.old {
		t := &e.old[i]
		t.used.each(func(page int) { e.card.WriteTable(t.addr+uint64(page)*SmallPage, zeroPage[:]) })
		e.card.FreeTable(t.addr, t.size)
	}
	e.old = e.old[:0]
}

func (e *encoder) retired() bool { return len(e.old) > 0 }
