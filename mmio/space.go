package mmio

import (
	"encoding/binary"
	"fmt"
	"math/bits"
)

// Space is one instance of a declared register space. See the package comment
// for the rules and the locks.
type Space struct {
	size   uint32
	pages  []*page
	rows   []*row
	blocks []string
	byName map[string]uint16

	// mem holds every register at its own offset. Untouched pages cost
	// nothing: the allocator hands out zero pages lazily. Only put stores there.
	mem     []uint32
	touched []bool // pages of mem that may have something

	// scratch is the buffer of Read32 and Write32; nil while one of them uses it.
	scratch *[4]byte

	missed missedStats

	clock     func() int64
	clockCost int64 // what reading the clock twice costs, taken off each sample
}

// Size returns the size of the space in bytes.
func (s *Space) Size() uint32 { return s.size }

// Reset gives every register its reset value and empties the holes. Effects do not run;
// counters continue.
func (s *Space) Reset() {
	for i, touched := range s.touched {
		if touched {
			clear(s.mem[i<<(pageShift-2):][:pageSize/4])
			s.touched[i] = false
		}
	}
	for _, r := range s.rows[1:] {
		if r.decl.Reset != 0 {
			s.resetRow(r)
		}
	}
}

// ResetBlock gives the registers of one block their reset values. Effects do not run.
func (s *Space) ResetBlock(name string) {
	for _, r := range s.rows[1:] {
		if s.blocks[r.block] == name && r.window == nil {
			s.resetRow(r)
		}
	}
}

func (s *Space) resetRow(r *row) {
	for i := range r.decl.instances() {
		dword := r.decl.InstanceOffset(i) / 4
		s.put(dword, s.mem[dword]&^r.lanes|r.decl.Reset<<r.shift)
	}
}

func (s *Space) put(dword, v uint32) {
	s.mem[dword] = v
	s.touched[dword>>(pageShift-2)] = true
}

// Read fills p from offset off. An access that leaves the space, even by its
// last byte only, reads as zero and is counted.
func (s *Space) Read(off uint32, p []byte) {
	if !s.admit(off, len(p)) {
		clear(p)
		return
	}
	for len(p) > 0 {
		n := s.readPart(off, p)
		off += uint32(n)
		p = p[n:]
	}
}

// Write stores p at offset off and runs the effects. An access that leaves the
// space, even by its last byte only, is counted and dropped.
func (s *Space) Write(off uint32, p []byte) {
	if !s.admit(off, len(p)) {
		return
	}
	for len(p) > 0 {
		n := s.writePart(off, p)
		off += uint32(n)
		p = p[n:]
	}
}

// Read32 reads four bytes as the guest would.
func (s *Space) Read32(off uint32) uint32 {
	b := s.takeScratch()
	s.Read(off, b[:])
	v := binary.LittleEndian.Uint32(b[:])
	s.scratch = b
	return v
}

// Write32 writes four bytes as the guest would.
func (s *Space) Write32(off, v uint32) {
	b := s.takeScratch()
	binary.LittleEndian.PutUint32(b[:], v)
	s.Write(off, b[:])
	s.scratch = b
}

// takeScratch returns a buffer that the caller puts back. A buffer on the stack
// would escape into the windows; an effect that calls Read32 itself gets another.
func (s *Space) takeScratch() *[4]byte {
	b := s.scratch
	if b == nil {
		return new([4]byte)
	}
	s.scratch = nil
	return b
}

func (s *Space) admit(off uint32, n int) bool {
	if n != 1 && n != 2 && n != 4 && n != 8 {
		s.missed.oddSize.Add(1)
	}
	if uint64(off)+uint64(n) > uint64(s.size) {
		s.missed.outside.Add(1)
		return false
	}
	return true
}

// Barrier reports whether an access of n bytes at off is a memory barrier, by the rows that it
// touches. It may be called at any time.
func (s *Space) Barrier(off uint64, n int, b Barrier) bool {
	if off+uint64(n) > uint64(s.size) {
		return false
	}
	for at := uint32(off); n > 0; {
		size, mask := part(at, n)
		for id := s.find(at); id != 0; id = s.rows[id].next {
			if r := s.rows[id]; r.decl.Barrier&b != 0 && r.lanes&mask != 0 {
				return true
			}
		}
		at, n = at+uint32(size), n-size
	}
	return false
}

// find returns the first row of the dword at off, which must be inside the
// space.
func (s *Space) find(off uint32) uint16 {
	p := s.pages[off>>pageShift]
	if p == nil {
		return 0
	}
	return p.slot[off%pageSize/4]
}

// part returns how many of n bytes belong to the dword at off, and their mask.
func part(off uint32, n int) (int, uint32) {
	lane := off & 3
	if room := int(4 - lane); n > room {
		n = room
	}
	return n, (uint32(1)<<(n*8-1)<<1 - 1) << (lane * 8)
}

func (s *Space) readPart(off uint32, p []byte) int {
	id := s.find(off)
	if r := s.rows[id]; r.window != nil {
		return s.readWindow(r, off, p)
	}
	n, mask := part(off, len(p))
	v := s.readDword(id, off&^3, mask) >> (off & 3 * 8)
	for i := range n {
		p[i] = byte(v >> (i * 8))
	}
	return n
}

func (s *Space) writePart(off uint32, p []byte) int {
	id := s.find(off)
	if r := s.rows[id]; r.window != nil {
		return s.writeWindow(r, off, p)
	}
	n, mask := part(off, len(p))
	var v uint32
	for i := range n {
		v |= uint32(p[i]) << (i * 8)
	}
	s.writeDword(id, off&^3, v<<(off&3*8), mask)
	return n
}

// readDword reads the registers of one dword that mask touches, then the bytes
// that belong to none. id is the dword's first row.
func (s *Space) readDword(id uint16, off, mask uint32) uint32 {
	var v, declared uint32
	for id != 0 {
		r := s.rows[id]
		declared |= r.lanes
		if r.lanes&mask != 0 {
			v |= s.readRow(r, off, mask)
		}
		id = r.next
	}
	if rest := mask &^ declared; rest != 0 {
		s.missed.hole(holeAt(off, declared), false)
		v |= s.mem[off/4] & rest
	}
	return v & mask
}

// readRow returns one register's value, in its place in the dword.
func (s *Space) readRow(r *row, off, mask uint32) uint32 {
	n, start := s.begin(&r.stats.reads)
	if r.decl.Stub {
		s.missed.stubs.Add(1)
	}
	v := s.mem[off/4] & r.lanes &^ r.wo
	if r.rc != 0 {
		s.put(off/4, s.mem[off/4]&^(r.rc&mask))
	}
	if r.hooks.Read != nil {
		v = r.hooks.Read(r.rep.instance(off), v>>r.shift) << r.shift & r.lanes
	}
	s.end(&r.stats.reads, n, start)
	return v
}

// writeDword writes the registers of one dword that mask touches, then the
// bytes that belong to none. id is the dword's first row.
func (s *Space) writeDword(id uint16, off, v, mask uint32) {
	var declared uint32
	for id != 0 {
		r := s.rows[id]
		declared |= r.lanes
		if r.lanes&mask != 0 {
			s.writeRow(r, off, v, r.lanes&mask)
		}
		id = r.next
	}
	if rest := mask &^ declared; rest != 0 {
		s.missed.hole(holeAt(off, declared), true)
		s.put(off/4, s.mem[off/4]&^rest|v&rest)
	}
}

// writeRow writes the bits of one register that m selects; v and m are in dword
// position.
func (s *Space) writeRow(r *row, off, v, m uint32) {
	n, start := s.begin(&r.stats.writes)
	if r.decl.Stub {
		s.missed.stubs.Add(1)
	}
	if r.writable&m == 0 {
		s.missed.readOnly.Add(1)
		r.stats.readOnly.Add(1)
	}
	old := s.mem[off/4]
	val := old&^(r.rw&m) | v&r.rw&m
	val &^= v & r.w1c & m
	val |= v & r.w1s & m
	s.put(off/4, val)
	if r.hooks.Write != nil {
		r.hooks.Write(r.rep.instance(off), Write{
			Old:  old & r.lanes >> r.shift,
			New:  val & r.lanes >> r.shift,
			Data: v & m >> r.shift,
			Mask: m >> r.shift,
		})
	}
	s.end(&r.stats.writes, n, start)
}

// holeAt returns the first byte of the dword at off that no row declares: the
// offset under which accesses to its undeclared bytes are counted.
func holeAt(off, declared uint32) uint32 {
	return off + uint32(bits.TrailingZeros32(^declared))/8
}

func (s *Space) readWindow(r *row, off uint32, p []byte) int {
	p = r.windowPart(off, p)
	n, start := s.begin(&r.stats.reads)
	clear(p) // a window that fills less than it should must not show old bytes
	r.window.Read(off-r.windowBase, p)
	s.end(&r.stats.reads, n, start)
	return len(p)
}

func (s *Space) writeWindow(r *row, off uint32, p []byte) int {
	p = r.windowPart(off, p)
	n, start := s.begin(&r.stats.writes)
	r.window.Write(off-r.windowBase, p)
	s.end(&r.stats.writes, n, start)
	return len(p)
}

// windowPart returns the part of p that lies inside the aperture, with no
// capacity beyond it.
func (r *row) windowPart(off uint32, p []byte) []byte {
	n := min(uint64(len(p)), uint64(r.windowBase+r.windowSize-off))
	return p[:n:n]
}

// Restrict makes every row whose policy is Refuse read-only: writes are counted as writes
// to read-only registers and have no effect. It is for virtual GPUs, not for a card in
// pass-through.
func (s *Space) Restrict() {
	for _, r := range s.rows[1:] {
		if r.decl.Policy == Refuse {
			r.rw, r.wo, r.w1c, r.w1s, r.writable = 0, 0, 0, 0, 0
			r.hooks.Write = nil
		}
	}
}

// Cell is a register instance as its owner sees it: plain storage, without
// access modes, effects or counts.
type Cell struct {
	s     *Space
	dword uint32
	lanes uint32
	shift uint8
}

// Cell returns instance i of the named row. The name comes from code, not from
// a guest, so a wrong one is a bug and panics.
func (s *Space) Cell(name string, i int) Cell {
	id, ok := s.byName[name]
	if !ok {
		panic(fmt.Sprintf("mmio: no register named %s", name))
	}
	r := s.rows[id]
	if r.window != nil {
		panic(fmt.Sprintf("mmio: %s is an aperture and stores nothing", name))
	}
	if i < 0 || i >= r.decl.instances() {
		panic(fmt.Sprintf("mmio: %s has %d instances, not one numbered %d", name, r.decl.instances(), i))
	}
	return Cell{s: s, dword: r.decl.InstanceOffset(i) / 4, lanes: r.lanes, shift: r.shift}
}

// Offset returns where the register's dword lies in its space.
func (c Cell) Offset() uint32 { return c.dword * 4 }

// Get returns the stored value.
func (c Cell) Get() uint32 { return c.s.mem[c.dword] & c.lanes >> c.shift }

// Put stores v.
func (c Cell) Put(v uint32) {
	c.s.put(c.dword, c.s.mem[c.dword]&^c.lanes|v<<c.shift&c.lanes)
}

// Set sets the bits of mask.
func (c Cell) Set(mask uint32) { c.Put(c.Get() | mask) }

// Clear clears the bits of mask.
func (c Cell) Clear(mask uint32) { c.Put(c.Get() &^ mask) }
