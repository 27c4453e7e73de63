package mmio

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

const (
	pageShift  = 12
	pageSize   = 1 << pageShift
	pageDwords = pageSize / 4
)

// row is a Reg or an Aperture prepared for dispatch.
type row struct {
	lanes                uint32 // the dword's bits that are this register's
	rw, wo, w1c, w1s, rc uint32 // masks in dword position
	writable             uint32
	shift                uint8  // of the register inside its dword
	next                 uint16 // the next higher row in the same dword, 0 = none

	hooks                  Hooks
	rep                    nesting
	window                 *Window
	windowBase, windowSize uint32

	stats rowStats
	decl  Reg
	block int
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
		size:    size,
		pages:   make([]*page, size>>pageShift),
		rows:    make([]*row, 1, 1024), // row 0 is the hole
		byName:  make(map[string]uint16),
		mem:     make([]uint32, size/4),
		touched: make([]bool, size>>pageShift),
		clock:   now,
	}
	s.rows[0] = &row{decl: Reg{Name: "(hole)"}}
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
	if err := s.checkBindings(bind); err != nil {
		return nil, fmt.Errorf("mmio: %w", err)
	}
	s.clockCost = clockCost(s.clock)
	s.Reset()
	return s, nil
}

func (s *Space) checkBindings(bind *Bindings) error {
	for _, name := range slices.Sorted(maps.Keys(bind.regs)) {
		if id, ok := s.byName[name]; !ok || s.rows[id].window != nil {
			return fmt.Errorf("effect bound to %s, which no register declares", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(bind.windows)) {
		if id, ok := s.byName[name]; !ok || s.rows[id].window == nil {
			return fmt.Errorf("window bound to %s, which no aperture declares", name)
		}
	}
	return nil
}

func (s *Space) addReg(block int, decl *Reg, bind *Bindings) error {
	r, err := newRow(block, decl)
	if err != nil {
		return err
	}
	if err := s.fits(decl); err != nil {
		return err
	}
	h, bound := bind.regs[decl.Name]
	switch {
	case bound && decl.Effect == "":
		return fmt.Errorf("register %s declares no effect, but one is bound", decl.Name)
	case !bound && decl.Effect != "":
		return fmt.Errorf("register %s declares the effect %q, but none is bound", decl.Name, decl.Effect)
	case bound && h.Read == nil && h.Write == nil:
		return fmt.Errorf("register %s declares the effect %q, but its binding has neither Read nor Write", decl.Name, decl.Effect)
	}
	r.hooks = h
	id, err := s.addRow(r)
	if err != nil {
		return err
	}
	for i := range decl.instances() {
		if err := s.index(id, decl.InstanceOffset(i)); err != nil {
			return err
		}
	}
	return nil
}

// fits checks that the last instance ends inside the space. It calculates in 64
// bits: a wrapped offset would land on another register. Instances are
// apart from each other, so this bounds their number too.
func (s *Space) fits(decl *Reg) error {
	last := uint64(decl.Offset)
	for _, d := range decl.Rep {
		last += uint64(d.Count-1) * uint64(d.Stride)
	}
	if last >= uint64(s.size) {
		return fmt.Errorf("%s has an instance at %#06x, outside the space of %#x bytes", decl.Name, last, s.size)
	}
	return nil
}

// addAperture gives all pages of the aperture one shared page table.
func (s *Space) addAperture(block int, a Aperture, bind *Bindings) error {
	w, bound := bind.windows[a.Name]
	if !bound || w.Read == nil || w.Write == nil {
		return fmt.Errorf("aperture %s has no window bound, or only half of one", a.Name)
	}
	if a.Size == 0 || a.Offset%pageSize != 0 || a.Size%pageSize != 0 {
		return fmt.Errorf("aperture %s at %#x, %#x bytes, is not made of whole pages", a.Name, a.Offset, a.Size)
	}
	if uint64(a.Offset)+uint64(a.Size) > uint64(s.size) {
		return fmt.Errorf("aperture %s at %#x, %#x bytes, lies outside the space of %#x bytes", a.Name, a.Offset, a.Size, s.size)
	}
	id, err := s.addRow(&row{
		decl:  Reg{Name: a.Name, Offset: a.Offset, Policy: a.Policy, Effect: a.Effect},
		block: block, lanes: ^uint32(0), window: &w, windowBase: a.Offset, windowSize: a.Size,
	})
	if err != nil {
		return err
	}
	own := new(page)
	for i := range own.slot {
		own.slot[i] = id
	}
	for n := a.Offset >> pageShift; n < (a.Offset+a.Size)>>pageShift; n++ {
		if p := s.pages[n]; p != nil {
			i := slices.IndexFunc(p.slot[:], func(id uint16) bool { return id != 0 })
			return fmt.Errorf("%s and %s both cover offset %#06x", s.rows[p.slot[i]].decl.Name, a.Name, n<<pageShift+uint32(i)*4)
		}
		s.pages[n] = own
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

// index enters row id at the byte offset off, refusing bytes already taken. The
// rows of one dword are chained by rising offset.
func (s *Space) index(id uint16, off uint32) error {
	r := s.rows[id]
	p := s.pages[off>>pageShift]
	if p == nil {
		p = new(page)
		s.pages[off>>pageShift] = p
	}
	first := &p.slot[off%pageSize/4]
	for n := *first; n != 0; n = s.rows[n].next {
		old := s.rows[n]
		if old.lanes&r.lanes != 0 {
			return fmt.Errorf("%s and %s both cover offset %#06x", old.decl.Name, r.decl.Name, off)
		}
		if len(r.decl.Rep) != 0 || len(old.decl.Rep) != 0 {
			return fmt.Errorf("%s and %s share the dword at %#06x, and one of them repeats",
				old.decl.Name, r.decl.Name, off&^3)
		}
	}
	link := first
	for *link != 0 && s.rows[*link].shift < r.shift {
		link = &s.rows[*link].next
	}
	r.next = *link
	*link = id
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
	rep, err := newNesting(decl)
	if err != nil {
		return nil, err
	}
	if decl.Access >= accessModes {
		return nil, fmt.Errorf("register %s has the unknown access mode %d", decl.Name, decl.Access)
	}
	bits := width * 8
	all := uint32(1)<<(bits-1)<<1 - 1
	if decl.Reset&^all != 0 {
		return nil, fmt.Errorf("register %s of %d bytes has the reset value %#x", decl.Name, width, decl.Reset)
	}
	r := &row{decl: *decl, block: block, shift: uint8(decl.Offset % 4 * 8), rep: rep}
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
	r.writable = r.rw | r.w1c | r.w1s
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
