package mmio

import (
	"fmt"
	"strings"
)

const (
	pageShift  = 12
	pageSize   = 1 << pageShift
	pageDwords = pageSize / 4
)

// row is a Reg prepared for dispatch.
type row struct {
	decl  Reg
	block int
	hooks Hooks

	lanes                  uint32 // the dword's bits that are this register's
	shift                  uint8  // of the register inside its dword
	rw, wo, w1c, w1s, rc   uint32 // masks in dword position
	writable               uint32
	next                   uint16 // another row in the same dword, 0 = none
	window                 *Window
	windowBase, windowSize uint32

	stats rowStats
}

// page maps a page's dwords to rows; 0 is a hole.
type page struct {
	slot [pageDwords]uint16
}

// New builds a space of size bytes (a multiple of 4096). It fails, naming both
// sides, if rows overlap, fields do not fit, or effects and bindings differ.
func New(size uint32, blocks []Block, apertures []Aperture, bind *Bindings) (*Space, error) {
	if size == 0 || size%pageSize != 0 {
		return nil, fmt.Errorf("mmio: space of %#x bytes is not a multiple of %#x", size, pageSize)
	}
	if bind == nil {
		bind = &Bindings{}
	}
	if bind.err != nil {
		return nil, bind.err
	}
	s := &Space{
		size:   size,
		pages:  make([]*page, size>>pageShift),
		rows:   make([]*row, 1, 1024), // row 0 is the hole
		byName: make(map[string]uint16),
	}
	s.rows[0] = &row{decl: Reg{Name: "(hole)"}, lanes: ^uint32(0)}
	for bi, b := range blocks {
		s.blocks = append(s.blocks, b.Name)
		for i := range b.Regs {
			if err := s.addReg(bi, &b.Regs[i], bind); err != nil {
				return nil, fmt.Errorf("mmio: block %s: %w", b.Name, err)
			}
		}
	}
	for _, a := range apertures {
		s.blocks = append(s.blocks, a.Name)
		if err := s.addAperture(len(s.blocks)-1, a, bind); err != nil {
			return nil, fmt.Errorf("mmio: %w", err)
		}
	}
	for name := range bind.regs {
		if _, ok := s.byName[name]; !ok {
			return nil, fmt.Errorf("mmio: effect bound to %s, which no row declares", name)
		}
	}
	for name := range bind.windows {
		if _, ok := s.byName[name]; !ok {
			return nil, fmt.Errorf("mmio: window bound to %s, which no aperture declares", name)
		}
	}
	s.missed.init()
	s.Reset()
	return s, nil
}

func (s *Space) addReg(block int, decl *Reg, bind *Bindings) error {
	r, err := newRow(block, decl)
	if err != nil {
		return err
	}
	h, bound := bind.regs[decl.Name]
	switch {
	case bound && decl.Effect == "":
		return fmt.Errorf("register %s declares no effect, but one is bound", decl.Name)
	case !bound && decl.Effect != "":
		return fmt.Errorf("register %s declares the effect %q, but none is bound", decl.Name, decl.Effect)
	}
	r.hooks = h
	id, err := s.addRow(r)
	if err != nil {
		return err
	}
	for i := range decl.instances() {
		if err := s.place(id, decl.offset(i)); err != nil {
			return err
		}
	}
	return nil
}

func (s *Space) addAperture(block int, a Aperture, bind *Bindings) error {
	w, bound := bind.windows[a.Name]
	if !bound || w.Read == nil || w.Write == nil {
		return fmt.Errorf("aperture %s has no window bound, or only half of one", a.Name)
	}
	if a.Size == 0 || a.Offset%pageSize != 0 || a.Size%pageSize != 0 {
		return fmt.Errorf("aperture %s at %#x, %#x bytes, is not made of whole pages", a.Name, a.Offset, a.Size)
	}
	id, err := s.addRow(&row{
		decl:  Reg{Name: a.Name, Offset: a.Offset, Effect: a.Effect},
		block: block, lanes: ^uint32(0), window: &w, windowBase: a.Offset, windowSize: a.Size,
	})
	if err != nil {
		return err
	}
	for off := a.Offset; off != a.Offset+a.Size; off += 4 {
		if err := s.place(id, off); err != nil {
			return err
		}
	}
	return nil
}

func (s *Space) addRow(r *row) (uint16, error) {
	if r.decl.Name == "" {
		return 0, fmt.Errorf("row at %#06x has no name", r.decl.Offset)
	}
	if old, dup := s.byName[r.decl.Name]; dup {
		return 0, fmt.Errorf("%s is declared at %#06x and again at %#06x",
			r.decl.Name, s.rows[old].decl.Offset, r.decl.Offset)
	}
	id := len(s.rows)
	if id > 0xffff {
		return 0, fmt.Errorf("%s is row %d; a space holds 65535", r.decl.Name, id)
	}
	s.byName[r.decl.Name] = uint16(id)
	s.rows = append(s.rows, r)
	return uint16(id), nil
}

// place enters row id at the byte offset off, refusing bytes already taken.
func (s *Space) place(id uint16, off uint32) error {
	r := s.rows[id]
	if off >= s.size {
		return fmt.Errorf("%s at %#06x lies outside the space of %#x bytes", r.decl.Name, off, s.size)
	}
	p := s.pages[off>>pageShift]
	if p == nil {
		p = new(page)
		s.pages[off>>pageShift] = p
	}
	slot := &p.slot[off%pageSize/4]
	for old := *slot; old != 0; old = s.rows[old].next {
		if s.rows[old].lanes&r.lanes != 0 {
			return fmt.Errorf("%s and %s both cover offset %#06x", s.rows[old].decl.Name, r.decl.Name, off)
		}
	}
	if *slot != 0 {
		if len(r.decl.Rep) != 0 || len(s.rows[*slot].decl.Rep) != 0 {
			return fmt.Errorf("%s and %s share the dword at %#06x, and one of them repeats",
				s.rows[*slot].decl.Name, r.decl.Name, off&^3)
		}
		r.next = *slot
	}
	*slot = id
	return nil
}

func newRow(block int, decl *Reg) (*row, error) {
	width := uint32(decl.Width)
	if width == 0 {
		width = 4
	}
	if width != 1 && width != 2 && width != 4 {
		return nil, fmt.Errorf("register %s has width %d; 1, 2 or 4 are possible", decl.Name, width)
	}
	if decl.Offset%width != 0 {
		return nil, fmt.Errorf("register %s of %d bytes at %#06x is not aligned", decl.Name, width, decl.Offset)
	}
	if len(decl.Rep) > 2 {
		return nil, fmt.Errorf("register %s repeats in %d dimensions; at most 2 are possible", decl.Name, len(decl.Rep))
	}
	for _, d := range decl.Rep {
		if d.Count < 1 || d.Stride < width || d.Stride%4 != 0 {
			return nil, fmt.Errorf("register %s repeats %d times, %#x apart: need at least 1, and a multiple of 4 that fits",
				decl.Name, d.Count, d.Stride)
		}
	}
	if decl.Access >= accessModes {
		return nil, fmt.Errorf("register %s has the unknown access mode %d", decl.Name, decl.Access)
	}
	bits := width * 8
	all := uint32(1)<<(bits-1)<<1 - 1
	if decl.Reset&^all != 0 {
		return nil, fmt.Errorf("register %s of %d bytes has the reset value %#x", decl.Name, width, decl.Reset)
	}
	r := &row{decl: *decl, block: block, shift: uint8(decl.Offset % 4 * 8)}
	r.lanes = all << r.shift
	var covered uint32
	for i, f := range decl.Fields {
		if f.Hi < f.Lo || uint32(f.Hi) >= bits {
			return nil, fmt.Errorf("register %s: field %s %d:%d does not fit into %d bits", decl.Name, f.Name, f.Hi, f.Lo, bits)
		}
		if f.Access >= accessModes {
			return nil, fmt.Errorf("register %s: field %s has the unknown access mode %d", decl.Name, f.Name, f.Access)
		}
		if covered&f.mask() != 0 {
			return nil, fmt.Errorf("register %s: fields %s and %s overlap", decl.Name, overlapping(decl.Fields[:i], f), f.Name)
		}
		covered |= f.mask()
		r.addMode(f.Access, f.mask()<<r.shift)
	}
	r.addMode(decl.Access, (all&^covered)<<r.shift)
	r.writable = r.rw | r.wo | r.w1c | r.w1s
	return r, nil
}

func overlapping(fields []Field, f Field) string {
	var names []string
	for _, g := range fields {
		if g.mask()&f.mask() != 0 {
			names = append(names, g.Name)
		}
	}
	return strings.Join(names, ", ")
}

func (r *row) addMode(a Access, mask uint32) {
	switch a {
	case RW:
		r.rw |= mask
	case WO:
		r.rw |= mask
		r.wo |= mask
	case W1C:
		r.w1c |= mask
	case W1S:
		r.w1s |= mask
	case RC:
		r.rc |= mask
	}
}

// instances returns how many registers the row declares.
func (r *Reg) instances() int {
	n := 1
	for _, d := range r.Rep {
		n *= d.Count
	}
	return n
}

// offset returns the byte offset of instance i.
func (r *Reg) offset(i int) uint32 {
	off := r.Offset
	for d := len(r.Rep) - 1; d >= 0; d-- {
		off += uint32(i%r.Rep[d].Count) * r.Rep[d].Stride
		i /= r.Rep[d].Count
	}
	return off
}

// instance is the reverse of offset, for an offset that is the row's.
func (r *Reg) instance(off uint32) int {
	rest := off - r.Offset
	switch len(r.Rep) {
	case 0:
		return 0
	case 1:
		return int(rest / r.Rep[0].Stride)
	}
	outer, inner := r.Rep[0], r.Rep[1]
	if outer.Stride >= inner.Stride {
		return int(rest/outer.Stride)*inner.Count + int(rest%outer.Stride/inner.Stride)
	}
	return int(rest%inner.Stride/outer.Stride)*inner.Count + int(rest/inner.Stride)
}

// InstanceName returns the name of instance i as traces and reports print it.
func (r *Reg) InstanceName(i int) string {
	switch len(r.Rep) {
	case 0:
		return r.Name
	case 1:
		return fmt.Sprintf("%s[%d]", r.Name, i)
	}
	return fmt.Sprintf("%s[%d][%d]", r.Name, i/r.Rep[1].Count, i%r.Rep[1].Count)
}
