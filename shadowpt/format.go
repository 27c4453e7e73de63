package shadowpt

// Format describes the page tables of a chip: one or more levels of directories, of which the
// last names up to two tables of pages, of large and of small ones. It is data: all that looks
// up, shadows or caches takes its geometry from here.
type Format struct {
	Name  string
	Dirs  []Level  // from the root
	Pages [2]Level // tables of big and of small pages

	pte pteFields

	// Masks for handling many page entries without decoding them. copied has the bits that
	// are copied to the card. An entry lets engines write VRAM if only valid is set of
	// writable.
	valid, readOnly, inSystem, ofAddress, copied, writable uint64

	addrUp   uint8 // from the place of the address in an entry to an address
	groupUp  uint8 // from the number of a small page to that of the big one with its range
	group    int   // how many small pages share that range
	physSize uint64
}

// Level is one level of tables. Its entries have one or two words of 64 bits.
type Level struct {
	Shift uint8 // an entry covers 1 << Shift bytes
	Bits  uint8 // of an address choose the entry
	Words uint8 // of an entry

	dir dirFields // of a directory
}

// Span is how many bytes of the address space an entry covers.
func (l *Level) Span() uint64 { return 1 << l.Shift }

// Entries is how many entries a table has.
func (l *Level) Entries() int { return 1 << l.Bits }

// Size is the size of a table in bytes.
func (l *Level) Size() uint64 { return uint64(l.Words) * 8 << l.Bits }

// Index is the number of the entry for va in its table.
func (l *Level) Index(va uint64) uint64 { return va >> l.Shift & (1<<l.Bits - 1) }

// Tables of a node and of a directory entry, as indices. A directory's table of the next level
// is in the place of the small one.
const (
	big   = 0
	small = 1
)

// MaxLevels bounds the levels of directories.
const MaxLevels = 6

// VASize is the size of an address space in bytes.
func (f *Format) VASize() uint64 { return f.Dirs[0].Span() << f.Dirs[0].Bits }

// last is the last level of directories.
func (f *Format) last() *Level { return &f.Dirs[len(f.Dirs)-1] }

// field is a field of an entry's word. One of no bits is absent.
type field struct{ lo, bits uint8 }

func (f field) get(q uint64) uint64 { return q >> f.lo & (1<<f.bits - 1) }

func (f field) put(v uint64) uint64 { return v & (1<<f.bits - 1) << f.lo }

func (f field) putIf(on bool) uint64 {
	if on {
		return f.put(1)
	}
	return 0
}

// mask is the field's bits in an entry.
func (f field) mask() uint64 { return f.put(^uint64(0)) }

// pteFields are the fields of a page entry.
type pteFields struct {
	valid, supervisor, readOnly, encrypted, volatile, noAtomics, acd field

	target, addr, kind, compTag field

	// unmapped tells what an entry that is not valid means. Where it has no bits, nothing.
	unmapped        field
	sparse, noSmall uint64 // its values
}

// dirFields are the fields of a directory entry.
type dirFields struct {
	tables [2]tableFields
	size   field  // code of the tables' length
	page   uint64 // the bit of word 0 that makes the entry a page's
	pages  bool   // such pages exist at this level
	// The entry is sparse if word 0 has these bits of the mask.
	sparseMask, sparse uint64
}

// tableFields are the fields that say where a table is.
type tableFields struct {
	word         uint8
	target, addr field
	unit         uint8 // an address counts 1 << unit bytes
}

// pageShift is log2 of SmallPage, which the address of every page entry counts.
const pageShift = 12

// prepare computes what follows from the other fields.
func (f Format) prepare() *Format {
	p := &f.pte
	f.valid, f.readOnly, f.ofAddress = p.valid.mask(), p.readOnly.mask(), p.addr.mask()
	f.inSystem = p.target.put(uint64(SystemCoherent)) & p.target.put(uint64(SystemNonCoherent)) // clear in the other targets
	f.copied = f.valid | f.readOnly | p.supervisor.mask() | p.volatile.mask() | p.noAtomics.mask() | p.acd.mask() |
		p.target.mask() | p.kind.mask()
	f.writable = f.valid | f.readOnly | p.target.mask()
	f.addrUp = pageShift - p.addr.lo
	f.physSize = 1 << (p.addr.bits + pageShift)
	f.groupUp = f.Pages[big].Shift - f.Pages[small].Shift
	f.group = 1 << f.groupUp
	return &f
}

// addressOf returns the address in a page entry, in bytes.
func (f *Format) addressOf(q uint64) uint64 { return q & f.ofAddress << f.addrUp }

// EncodeAddr returns an address as a page entry has it.
func (f *Format) EncodeAddr(addr uint64) uint64 { return addr >> f.addrUp & f.ofAddress }

// part returns the entry for the memory at an offset into a page, 0 if no address reaches it.
func (f *Format) part(q, offset uint64) uint64 {
	addr := f.addressOf(q) + offset
	if addr >= f.physSize {
		return 0
	}
	return q&^f.ofAddress | f.EncodeAddr(addr)
}

// sparse reports whether an entry that is not valid is a sparse page's.
func (f *Format) sparse(q uint64) bool {
	return f.pte.sparse != 0 && f.pte.unmapped.get(q) == f.pte.sparse
}

// covers reports whether a big page's entry takes precedence over small ones.
func (f *Format) covers(q uint64) bool {
	return q&f.valid != 0 || f.sparse(q) || f.pte.noSmall != 0 && f.pte.unmapped.get(q) == f.pte.noSmall
}

// namesSystem is 1 for a page entry that names system memory, else 0.
func (f *Format) namesSystem(q uint64) int {
	if q&f.valid != 0 && q&f.inSystem != 0 {
		return 1
	}
	return 0
}

// Target is the kind of memory of an address, as page entries and instance blocks encode it.
type Target uint8

const (
	VRAM              Target = 0
	Peer              Target = 1
	SystemCoherent    Target = 2
	SystemNonCoherent Target = 3
)

// System reports whether the target is system memory, reached by bus address.
func (t Target) System() bool { return t == SystemCoherent || t == SystemNonCoherent }

// Table is where a page table lies. Directory entries count targets differently from page
// entries: 0 means there is none, 1 is VRAM.
type Table struct {
	Present bool
	Target  Target
	Addr    uint64 // in bytes
}

func (t *tableFields) decode(w Words) Table {
	q := w[t.word]
	code, addr := t.target.get(q), t.addr.get(q)<<t.unit
	switch code {
	case 0:
		return Table{}
	case 1:
		return Table{Present: true, Target: VRAM, Addr: addr}
	}
	return Table{Present: true, Target: Target(code), Addr: addr}
}

func (t *tableFields) encode(table Table, w *Words) {
	if !table.Present {
		return
	}
	code := uint64(table.Target)
	if table.Target == VRAM {
		code = 1
	}
	w[t.word] |= t.target.put(code) | t.addr.put(table.Addr>>t.unit)
}

// Words are an entry of a directory. An entry of one word has it first.
type Words [2]uint64

// PDE is a decoded directory entry.
type PDE struct {
	// Small is the table of small pages, or of the next level of directories.
	Big, Small Table
	// Size is the size code: the entry's tables cover its span >> Size.
	Size uint8
	// Page is the page entry that the directory entry is, 0 if it is none.
	Page uint64
	// Sparse entries have no tables. Reads of what they cover return 0; writes have no effect.
	Sparse bool
}

// Decode decodes an entry of a directory.
func (l *Level) Decode(w Words) PDE {
	d := &l.dir
	switch {
	case w[0]&d.page != 0 && d.pages:
		return PDE{Page: w[0]}
	case w[0]&d.page != 0:
		return PDE{}
	case d.sparse != 0 && w[0]&d.sparseMask == d.sparse:
		return PDE{Sparse: true}
	}
	return PDE{Big: d.tables[big].decode(w), Small: d.tables[small].decode(w), Size: uint8(d.size.get(w[0]))}
}

// Encode is the reverse of Decode. Only VRAM, SystemCoherent and SystemNonCoherent tables can
// be encoded; a Peer table encodes as VRAM would.
func (l *Level) Encode(p PDE) (w Words) {
	switch {
	case p.Page != 0:
		return Words{p.Page}
	case p.Sparse:
		return Words{l.dir.sparse}
	}
	w[0] = l.dir.size.put(uint64(p.Size))
	l.dir.tables[big].encode(p.Big, &w)
	l.dir.tables[small].encode(p.Small, &w)
	return w
}

// PTE is a decoded page entry.
type PTE struct {
	Valid, Supervisor, ReadOnly, Encrypted, Volatile, NoAtomics, ACD bool

	Target  Target
	Addr    uint64 // in bytes, a multiple of 4 KiB
	Kind    uint8  // storage type; 00 is pitch linear
	CompTag uint32

	// Of entries that are not valid. Sparse pages read as 0 and ignore writes. NoSmall of a big
	// page says that no small page replaces it.
	Sparse, NoSmall bool
}

// DecodePTE decodes a page entry.
func (f *Format) DecodePTE(q uint64) PTE {
	p := &f.pte
	if p.unmapped.bits != 0 && q&f.valid == 0 {
		u := p.unmapped.get(q)
		return PTE{Sparse: u == p.sparse, NoSmall: u == p.noSmall}
	}
	return PTE{
		Valid:      p.valid.get(q) != 0,
		Supervisor: p.supervisor.get(q) != 0,
		ReadOnly:   p.readOnly.get(q) != 0,
		Encrypted:  p.encrypted.get(q) != 0,
		Volatile:   p.volatile.get(q) != 0,
		NoAtomics:  p.noAtomics.get(q) != 0,
		ACD:        p.acd.get(q) != 0,
		Target:     Target(p.target.get(q)),
		Addr:       f.addressOf(q),
		Kind:       uint8(p.kind.get(q)),
		CompTag:    uint32(p.compTag.get(q)),
	}
}

// EncodePTE is the reverse of DecodePTE.
func (f *Format) EncodePTE(e PTE) uint64 {
	p := &f.pte
	q := f.EncodeAddr(e.Addr) | p.target.put(uint64(e.Target)) | p.kind.put(uint64(e.Kind)) | p.compTag.put(uint64(e.CompTag))
	q |= p.valid.putIf(e.Valid) | p.supervisor.putIf(e.Supervisor) | p.readOnly.putIf(e.ReadOnly) | p.encrypted.putIf(e.Encrypted)
	q |= p.volatile.putIf(e.Volatile) | p.noAtomics.putIf(e.NoAtomics) | p.acd.putIf(e.ACD)
	switch {
	case e.Sparse:
		q |= p.unmapped.put(p.sparse)
	case e.NoSmall:
		q |= p.unmapped.put(p.noSmall)
	}
	return q
}
