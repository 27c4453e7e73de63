package shadowpt_test

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// program is a random guest program over page tables: what guests, engines and a
// client's memory map do to them, in any order, with a Tracker and shadows that
// it follows, or, between switches, full rebuilds. At each flush point every
// shadow must be what a fresh full rebuild of the same bytes makes.
type program struct {
	shape
	w      *twin
	t      *shadowpt.Tracker
	work   *shadowpt.Work
	spaces []*programSpace
	full   bool // shadows are rebuilt, not followed
	rnd    random
	tlb    []uint64 // guest pages that engines may still write

	direct  map[uint64]bool // guest pages that the guest writes without a trap
	found   int             // addresses that the card found
	sparse  int             // sparse ones
	refused int             // of guests' pages, or without any
	sizes   map[uint64]int  // found, by the size of their page
	entered string          // the immediate difference of a newly entered space
}

type programSpace struct {
	s     *shadowpt.Shadow
	card  *space
	space shadowpt.Space
	short bool // the card had no memory for all of it
}

// random is a small generator, so that a program is one number.
type random uint64

func (r *random) next() uint64 {
	*r ^= *r << 13
	*r ^= *r >> 7
	*r ^= *r << 17
	return uint64(*r) * 0x2545f4914f6cdd1d >> 8
}

func (r *random) n(n uint64) uint64 { return r.next() % n }

func (r *random) one(in uint64) bool { return r.n(in) == 0 }

func pick[T any](r *random, list ...T) T { return list[r.n(uint64(len(list)))] }

// shape is a program's format, and how it uses it.
type shape struct {
	format *shadowpt.Format
	pte    func(r *random) uint64
	// pde writes an entry of a directory that sp may use.
	pde func(p *program, sp *programSpace)
	// leafAt is where a page's entry may be.
	leafAt func(r *random) uint64
	va     func(r *random) uint64
	// where returns the card's address of va as the guest's tables have it, without the package.
	where func(w *twin, s shadowpt.Space, va uint64) (at uint64, pte shadowpt.PTE, ok bool)
}

// shapes are the formats, each with programs of its own.
var shapes = []shape{
	{shadowpt.Fermi, fermiPTE, fermiPDE, fermiLeafAt, fermiVA, (*twin).fermiWhere},
	{shadowpt.Hopper, hopperPTE, hopperPDE, hopperLeafAt, hopperVA, (*twin).hopperWhere},
}

// Where programs have their tables: some overlap, one reaches beyond the memory.
var (
	tablePlaces = []uint64{0x100000, 0x140000, 0x101000, 0x60000, 0x60000, 0x1a0000, 0x1fe000, 0x1c0000, 0x58000, twinVRAM}
	dirPlaces   = []uint64{0, 0x10000, 0x18000, 0x60000, twinVRAM - shadowpt.DirSize}
)

func newProgram(t reporter, sh shape, seed uint64) *program {
	p := &program{shape: sh, rnd: random(seed*2 + 1), direct: make(map[uint64]bool), sizes: make(map[uint64]int), work: shadowpt.NewWork(sh.format, 1<<40, 1<<40)}
	p.rnd.next()
	p.w = newTwin(t)
	p.t = shadowpt.NewTracker(p.w, p.work, twinVRAM, 64<<20)
	for range 1 + p.rnd.n(3) {
		p.enter()
	}
	for range len(sh.format.Dirs) * 20 { // so that levels meet
		p.pde(p, p.spaces[0])
		p.poke(p.anywhere(), p.pte(&p.rnd))
	}
	return p
}

func (p *program) enter() {
	space := shadowpt.Space{Dir: pick(&p.rnd, dirPlaces...), Target: pick(&p.rnd, shadowpt.VRAM, shadowpt.VRAM, shadowpt.SystemCoherent), Limit: p.format.VASize() - 1}
	if space.Target.System() && space.Dir >= twinRAM {
		space.Dir = 0x80000
	}
	c := newSpace(p.w.t, p.format)
	if p.rnd.one(3) {
		c.holes = map[uint64]bool{p.va(&p.rnd) / c.part: true}
	}
	s := shadowpt.NewShadow(p.w, c, p.work, space)
	if p.full {
		s.Rebuild()
	} else {
		p.t.Follow(s)
	}
	p.spaces = append(p.spaces, &programSpace{s: s, card: c, space: space})
	if p.entered == "" {
		p.entered = p.compare(p.spaces[len(p.spaces)-1])
	}
}

// run does n steps, and a flush at the end. It returns what differs first, "" if
// nothing does.
func (p *program) run(n int) string {
	for range n {
		if p.rnd.one(8) {
			if d := p.flush(); d != "" {
				return d
			}
			continue
		}
		p.step()
	}
	return p.flush()
}

func (p *program) step() {
	r := &p.rnd
	switch r.n(17) {
	case 0, 1, 2:
		p.poke(p.anywhere(), p.pte(r))
	case 3:
		m, at := p.somewhere()
		q := p.pte(r)
		for i := range r.n(100) {
			p.write(m, at+i*8, le(q+i*pick(r, uint64(0), 1<<4, 32<<4)))
		}
	case 4: // single bytes, as drivers write through BAR3
		m, at := p.somewhere()
		for i, b := range le(p.pte(r)) {
			if !r.one(4) {
				p.write(m, at+uint64(i), []byte{b})
			}
		}
	case 5, 6, 7:
		if len(p.spaces) > 0 {
			p.pde(p, pick(r, p.spaces...))
		}
	case 8:
		m, at := p.somewhere()
		p.write(m, at&^0xfff, make([]byte, shadowpt.SmallPage))
	case 9: // a table is used elsewhere
		from, to := pick(r, tablePlaces[:8]...)&^0xfff, pick(r, tablePlaces[:8]...)&^0xfff
		p.write(shadowpt.VRAM, to, slices.Clone(p.w.vram[from:from+shadowpt.SmallPage]))
	case 10:
		page := tablePage(r)
		p.direct[page] = !p.direct[page]
		p.t.Untrapped(page<<12, shadowpt.SmallPage, p.direct[page])
	case 11, 12:
		p.engine()
	case 13:
		p.remap()
	case 14:
		p.switchMode()
	case 15:
		if len(p.spaces) > 0 {
			p.changeRoom(pick(r, p.spaces...))
		}
	case 16:
		switch {
		case len(p.spaces) < 3 && r.one(3):
			p.enter()
		case len(p.spaces) > 1 && r.one(6):
			p.leave()
		}
	}
}

// changeRoom changes how much memory the card has for a space.
func (p *program) changeRoom(sp *programSpace) {
	if sp.card.room == 0 {
		sp.card.room, sp.short = 1+int(p.rnd.n(3)), true
		return
	}
	sp.card.room = 0
	if !p.full { // what is unfollowed frees some
		p.t.Unfollow(sp.s)
		p.t.Follow(sp.s)
		p.release()
	}
}

// switchMode changes from following to full rebuilds, or back.
func (p *program) switchMode() {
	if !p.rnd.one(3) {
		return
	}
	p.full = !p.full
	for _, sp := range p.spaces {
		if p.full {
			p.t.Unfollow(sp.s)
		} else {
			p.t.Follow(sp.s)
		}
	}
	p.release()
}

func (p *program) leave() {
	i := int(p.rnd.n(uint64(len(p.spaces))))
	sp := p.spaces[i]
	p.spaces = slices.Delete(p.spaces, i, i+1)
	if !p.full {
		p.t.Unfollow(sp.s)
	}
	p.release() // an invalidate, after which nothing walks it
	sp.s.Free()
}

func le(q uint64) []byte { return binary.LittleEndian.AppendUint64(nil, q) }

func (p *program) somewhere() (shadowpt.Target, uint64) {
	m := pick(&p.rnd, shadowpt.VRAM, shadowpt.VRAM, shadowpt.VRAM, shadowpt.SystemCoherent)
	return m, p.leafAt(&p.rnd)
}

func fermiLeafAt(r *random) uint64 {
	return pick(r, tablePlaces...) + pick(r, r.n(64), r.n(64), 511, 512, 1023, r.n(32768))*8
}

type where struct {
	m  shadowpt.Target
	at uint64
}

func (p *program) anywhere() where { m, at := p.somewhere(); return where{m, at} }

func tablePage(r *random) uint64 {
	return (pick(r, append(dirPlaces, tablePlaces[:9]...)...) >> 12) + r.n(2)
}

func (p *program) poke(at where, q uint64) { p.write(at.m, at.at, le(q)) }

// write is the guest's.
func (p *program) write(m shadowpt.Target, at uint64, b []byte) {
	mem := p.w.memory(m)
	if at+uint64(len(b)) > uint64(len(mem)) {
		return
	}
	copy(mem[at:], b)
	if m.System() || p.direct[at>>12] && p.direct[(at+uint64(len(b))-1)>>12] {
		return
	}
	p.t.Wrote(at, uint64(len(b)))
}

func fermiPTE(r *random) uint64 {
	e := shadowpt.PTE{
		Valid: !r.one(6), ReadOnly: r.one(4), Supervisor: r.one(16), Volatile: r.one(2),
		Target: pick(r, shadowpt.VRAM, shadowpt.VRAM, shadowpt.SystemCoherent, shadowpt.SystemNonCoherent, shadowpt.Peer),
		Addr:   r.n(3<<20) &^ 0xfff, Kind: byte(r.next()), CompTag: uint32(r.n(1 << 17)), Encrypted: r.one(4),
	}
	switch {
	case r.one(3):
		e.Addr &^= shadowpt.BigPage - 1
	case r.one(6): // a page that is a table
		e.Target, e.ReadOnly, e.Addr = shadowpt.VRAM, false, tablePage(r)<<12
	case r.one(32):
		e.Addr = r.n(1<<40) &^ 0xfff
	case r.one(32):
		e.Addr = 1<<40 - (1+r.n(40))<<12
	}
	if r.one(8) {
		return 0
	}
	return e.Encode()
}

func fermiPDE(p *program, sp *programSpace) {
	r := &p.rnd
	q := uint64(0)
	for _, shift := range []uint{0, 32} {
		q |= (pick(r, tablePlaces...)>>12<<4 | pick(r, uint64(0), 1, 1, 1, 2, 3, 2)) << shift
	}
	if r.one(2) {
		q |= r.n(4) << 2
	}
	if r.one(8) {
		q = 0
	}
	p.write(sp.space.Target, sp.space.Dir+r.n(4)*8, le(q))
}

func fermiVA(r *random) uint64 {
	return r.n(4)<<27 + pick(r, r.n(64)<<12, r.n(64)<<17, r.n(1<<15)<<12) + r.n(4096)
}

// engine writes a page of VRAM that some shadow lets it write, or let it write
// until the last invalidate.
func (p *program) engine() {
	r := &p.rnd
	for range 8 {
		if len(p.spaces) == 0 {
			return
		}
		sp := pick(r, p.spaces...)
		va := p.va(r)
		e, ok := sp.card.walk(va)
		if ok && e.Valid && e.Target == shadowpt.VRAM && !e.ReadOnly {
			p.tlb = append(p.tlb, uint64(slices.Index(p.w.pieces, int((e.Addr+va-e.VA)>>12))))
		}
	}
	for range 4 {
		if len(p.tlb) > 0 {
			at := pick(r, p.tlb...)<<12 + r.n(512)*8
			copy(p.w.vram[at:], le(pick(r, p.pte(r), r.n(1<<22)&^0xff|r.n(8), r.next())))
		}
	}
}

// remap changes the client's mappings, with its hole or its read-only part.
func (p *program) remap() {
	r := &p.rnd
	part := pick(r, &p.w.hole, &p.w.ro)
	old := *part
	from := pick(r, r.n(256), r.n(twinRAM>>12)) << 12
	*part = [2]uint64{from, from + (1+r.n(32))<<12}
	if r.one(8) {
		p.t.Remapped(0, 1<<35)
		return
	}
	p.t.Remapped(old[0], old[1]-old[0])
	p.t.Remapped(part[0], part[1]-part[0])
}

// flush brings all shadows up to date, or some, and compares them with the oracle's.
func (p *program) flush() string {
	if p.entered != "" {
		return p.entered
	}
	spaces := p.spaces
	if !p.full && p.rnd.one(2) {
		spaces = slices.DeleteFunc(slices.Clone(spaces), func(*programSpace) bool { return p.rnd.one(2) })
		var which []*shadowpt.Shadow
		for _, sp := range spaces {
			which = append(which, sp.s)
		}
		p.t.Update(which...)
	} else {
		p.t.UpdateAll()
	}
	for _, sp := range spaces {
		if p.full {
			sp.s.Rebuild()
		}
		sp.short = sp.card.room > 0
		if d := p.compare(sp); d != "" {
			return d
		}
		p.found += p.walk(sp)
	}
	if !p.rnd.one(4) { // else the card has not said that it is done
		p.release()
	}
	return ""
}

func (p *program) release() {
	p.t.Release()
	p.tlb = p.tlb[:0]
}

// compare holds the card's space against the one that a full rebuild makes on another card.
func (p *program) compare(sp *programSpace) string {
	c := newSpace(p.w.t, p.format)
	c.holes = sp.card.holes
	s := shadowpt.NewShadow(p.w, c, p.work, sp.space)
	s.Rebuild()
	defer s.Free()
	for at, want := range c.pages {
		if got, ok := sp.card.pages[at]; got != want && (ok || !sp.short) {
			return fmt.Sprintf("%#x: %+v and, rebuilt, %+v", at.va, got, want)
		}
	}
	for at, got := range sp.card.pages {
		if _, ok := c.pages[at]; !ok {
			return fmt.Sprintf("%#x: %+v and, rebuilt, nothing", at.va, got)
		}
	}
	return ""
}

// walk holds what the card finds at some addresses of a space against the guest's tables, byte by
// byte, and returns how many it found.
func (p *program) walk(sp *programSpace) (found int) {
	for range 200 {
		va := p.va(&p.rnd)
		at, pte, want := p.where(p.w, sp.space, va)
		page, got := sp.card.walk(va)
		if !got && (sp.short || sp.card.holes[va/sp.card.part]) {
			p.refused++
			continue
		}
		require.Equal(p.w.t, want, got, "VA %#x", va)
		if !got {
			continue
		}
		require.Equal(p.w.t, pte.Sparse, page.Sparse, "VA %#x", va)
		if pte.Sparse {
			p.sparse++
			continue
		}
		found++
		p.sizes[page.Size]++
		p.w.inside(page)
		require.Equal(p.w.t, at, page.Addr+va-page.VA, "VA %#x", va)
		require.Equal(p.w.t, []any{pte.Kind, pte.ReadOnly, pte.Supervisor, pte.Volatile, pte.NoAtomics, pte.ACD},
			[]any{page.Kind, page.ReadOnly, page.Supervisor, page.Volatile, page.NoAtomics, page.ACD})
		require.Zero(p.w.t, page.CompTag)
		require.False(p.w.t, page.Encrypted)
	}
	return found
}
