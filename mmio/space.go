package mmio

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"
)

// Space is one instance of a declared register space. See the package comment
// for the rules and for who locks what.
type Space struct {
	size   uint32
	pages  []*page
	rows   []*row
	blocks []string
	byName map[string]uint16

	// mem holds every register at its own offset. Pages nobody touches cost
	// nothing: the allocator hands out zero pages lazily.
	mem []uint32

	missed missedStats
	trace  atomic.Pointer[Trace]
}

// Size returns the size of the space in bytes.
func (s *Space) Size() uint32 { return s.size }

// Reset gives every register its reset value and empties the holes. Effects do
// not run; counters go on.
func (s *Space) Reset() {
	s.mem = make([]uint32, s.size/4)
	for _, r := range s.rows[1:] {
		if r.decl.Reset == 0 {
			continue
		}
		for i := range r.decl.instances() {
			s.mem[r.decl.offset(i)/4] |= r.decl.Reset << r.shift
		}
	}
}

// Read fills p from offset off. Bytes outside the space read as zero and are
// counted.
func (s *Space) Read(off uint32, p []byte) {
	if !s.admit(off, len(p), false) {
		clear(p)
		return
	}
	for len(p) > 0 {
		n := s.readPart(off, p)
		off += uint32(n)
		p = p[n:]
	}
}

// Write stores p at offset off and runs the effects. Bytes outside the space
// are counted and dropped.
func (s *Space) Write(off uint32, p []byte) {
	if !s.admit(off, len(p), true) {
		return
	}
	for len(p) > 0 {
		n := s.writePart(off, p)
		off += uint32(n)
		p = p[n:]
	}
}

// Read32 reads an aligned dword as the guest would.
func (s *Space) Read32(off uint32) uint32 {
	var b [4]byte
	s.Read(off, b[:])
	return binary.LittleEndian.Uint32(b[:])
}

// Write32 writes an aligned dword as the guest would.
func (s *Space) Write32(off, v uint32) {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], v)
	s.Write(off, b[:])
}

func (s *Space) admit(off uint32, n int, write bool) bool {
	if n != 1 && n != 2 && n != 4 && n != 8 {
		s.missed.oddSize.Add(1)
	}
	if uint64(off)+uint64(n) > uint64(s.size) {
		s.missed.outside.Add(1)
		return false
	}
	return true
}

// find returns the row at off, which must be inside the space.
func (s *Space) find(off uint32) uint16 {
	p := s.pages[off>>pageShift]
	if p == nil {
		return 0
	}
	return p.slot[off%pageSize/4]
}

// part returns how many bytes of p belong to the dword at off, and their mask.
func part(off uint32, n int) (int, uint32) {
	lane := off & 3
	if room := int(4 - lane); n > room {
		n = room
	}
	return n, (uint32(1)<<(n*8-1)<<1 - 1) << (lane * 8)
}

func (s *Space) readPart(off uint32, p []byte) int {
	id := s.find(off)
	r := s.rows[id]
	if r.window != nil {
		return s.readWindow(r, off, p)
	}
	n, mask := part(off, len(p))
	var v uint32
	if id == 0 {
		s.missed.hole(off&^3, false)
		v = s.mem[off/4]
	} else {
		v = s.readDword(id, off&^3, mask)
	}
	s.record(off, n, v>>(off&3*8), false)
	for i := range n {
		p[i] = byte(v >> (off&3*8 + uint32(i)*8))
	}
	return n
}

func (s *Space) writePart(off uint32, p []byte) int {
	id := s.find(off)
	r := s.rows[id]
	if r.window != nil {
		return s.writeWindow(r, off, p)
	}
	n, mask := part(off, len(p))
	var v uint32
	for i := range n {
		v |= uint32(p[i]) << (off&3*8 + uint32(i)*8)
	}
	s.record(off, n, v>>(off&3*8), true)
	if id == 0 {
		s.missed.hole(off&^3, true)
		s.mem[off/4] = s.mem[off/4]&^mask | v&mask
	} else {
		s.writeDword(id, off&^3, v, mask)
	}
	return n
}

// readDword reads the registers of one dword that mask touches.
func (s *Space) readDword(id uint16, off, mask uint32) uint32 {
	v := s.mem[off/4]
	for ; id != 0; id = s.rows[id].next {
		r := s.rows[id]
		if r.lanes&mask == 0 {
			continue
		}
		start := begin(&r.stats.reads)
		if r.decl.Stub {
			s.missed.stubs.Add(1)
		}
		v &^= r.wo
		if r.rc != 0 {
			s.mem[off/4] &^= r.rc & mask
		}
		if r.hooks.Read != nil {
			got := r.hooks.Read(r.decl.instance(off), v&r.lanes>>r.shift)
			v = v&^r.lanes | got<<r.shift&r.lanes
		}
		r.stats.end(start)
	}
	return v
}

// writeDword writes the registers of one dword that mask touches.
func (s *Space) writeDword(id uint16, off, v, mask uint32) {
	for ; id != 0; id = s.rows[id].next {
		r := s.rows[id]
		m := r.lanes & mask
		if m == 0 {
			continue
		}
		start := begin(&r.stats.writes)
		if r.decl.Stub {
			s.missed.stubs.Add(1)
		}
		if r.writable&m == 0 {
			s.missed.readOnly.Add(1)
		}
		old := s.mem[off/4]
		val := old&^(r.rw&m) | v&r.rw&m
		val &^= v & r.w1c & m
		val |= v & r.w1s & m
		s.mem[off/4] = val
		if r.hooks.Write != nil {
			r.hooks.Write(r.decl.instance(off), Write{
				Old:  old & r.lanes >> r.shift,
				New:  val & r.lanes >> r.shift,
				Data: v & m >> r.shift,
				Mask: m >> r.shift,
			})
		}
		r.stats.end(start)
	}
}

func (s *Space) readWindow(r *row, off uint32, p []byte) int {
	n := r.windowPart(off, len(p))
	start := begin(&r.stats.reads)
	r.window.Read(off-r.windowBase, p[:n])
	r.stats.end(start)
	s.record(off, n, lowBytes(p[:n]), false)
	return n
}

func (s *Space) writeWindow(r *row, off uint32, p []byte) int {
	n := r.windowPart(off, len(p))
	s.record(off, n, lowBytes(p[:n]), true)
	start := begin(&r.stats.writes)
	r.window.Write(off-r.windowBase, p[:n])
	r.stats.end(start)
	return n
}

func (r *row) windowPart(off uint32, n int) int {
	if left := r.windowBase + r.windowSize - off; uint32(n) > left {
		return int(left)
	}
	return n
}

// lowBytes returns up to four bytes of p as a value, for the trace.
func lowBytes(p []byte) uint32 {
	var v uint32
	for i := range min(len(p), 4) {
		v |= uint32(p[i]) << (i * 8)
	}
	return v
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
	if i < 0 || i >= r.decl.instances() {
		panic(fmt.Sprintf("mmio: %s has %d instances, not one numbered %d", name, r.decl.instances(), i))
	}
	return Cell{s: s, dword: r.decl.offset(i) / 4, lanes: r.lanes, shift: r.shift}
}

// Get returns the stored value.
func (c Cell) Get() uint32 { return c.s.mem[c.dword] & c.lanes >> c.shift }

// Put stores v.
func (c Cell) Put(v uint32) {
	c.s.mem[c.dword] = c.s.mem[c.dword]&^c.lanes | v<<c.shift&c.lanes
}

// Set sets the bits of mask.
func (c Cell) Set(mask uint32) { c.Put(c.Get() | mask) }

// Clear clears the bits of mask.
func (c Cell) Clear(mask uint32) { c.Put(c.Get() &^ mask) }

// MakePlain turns a row into plain read-write storage that holds v: its effect
// is gone, its access mode RW. It exists to show what a behaviour is needed
// for, by leaving it out. An unknown name is an error that names it.
func (s *Space) MakePlain(name string, v uint32) error {
	id, ok := s.byName[name]
	if !ok {
		return fmt.Errorf("mmio: no register named %s", name)
	}
	r := s.rows[id]
	if r.window != nil {
		return fmt.Errorf("mmio: %s is an aperture, not a register", name)
	}
	r.hooks = Hooks{}
	r.rw, r.writable = r.lanes, r.lanes
	r.wo, r.w1c, r.w1s, r.rc = 0, 0, 0, 0
	r.decl.Reset = v & (r.lanes >> r.shift)
	for i := range r.decl.instances() {
		c := s.Cell(name, i)
		c.Put(v)
	}
	return nil
}

var epoch = time.Now()

// now is a monotonic clock in nanoseconds.
func now() int64 { return int64(time.Since(epoch)) }
