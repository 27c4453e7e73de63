package shadowpt

import (
	"errors"
	"slices"
)

// Change is a change of an address space. Pages of one size, which follow one another in the space,
// are mapped; or what was mapped in the range no longer is.
type Change struct {
	VA, Size uint64
	Page     uint64 // size of the pages
	Target   Target
	Addr     uint64   // of the first page in its Target; the others follow, unless Addrs has them
	Addrs    []uint64 // of each page, nil if they follow one another in memory
	Kind     uint8    // storage type
	Flags    Flags
}

// Flags say what a Change does. Without Mapped and Sparse, the pages of the range, which are all
// mapped and of that size, no longer are.
type Flags uint8

const (
	Mapped Flags = 1 << iota
	Sparse       // reads return 0, writes have no effect
	Over         // pages of that size are mapped in all of the range, and are replaced
	ReadOnly
	Supervisor
	Volatile
	NoAtomics
	ACD
)

// Pages is how many pages the range has.
func (c *Change) Pages() uint64 { return c.Size / c.Page }

// Unmaps reports whether nothing is mapped in the range afterwards.
func (c *Change) Unmaps() bool { return c.Flags&(Mapped|Sparse) == 0 }

// PageAddr returns the address of page i.
func (c *Change) PageAddr(i uint64) uint64 {
	switch {
	case c.Addrs != nil:
		return c.Addrs[i]
	case c.Flags&Mapped != 0:
		return c.Addr + i*c.Page
	}
	return 0
}

// End is the end of the highest page that is mapped.
func (c *Change) End() uint64 {
	if c.Addrs != nil {
		return slices.Max(c.Addrs) + c.Page
	}
	return c.Addr + c.Size
}

// split returns the change of the first n bytes, and that of the rest.
func (c Change) split(n uint64) (first, rest Change) {
	first, rest = c, c
	first.Size, rest.VA, rest.Size = n, c.VA+n, c.Size-n
	if c.Addrs != nil {
		first.Addrs, rest.Addrs = c.Addrs[:n/c.Page], c.Addrs[n/c.Page:]
	} else if c.Flags&Mapped != 0 {
		rest.Addr += n
	}
	return first, rest
}

// PTE returns page i as an entry of tables.
func (c *Change) PTE(i uint64) PTE {
	has := func(f Flags) bool { return c.Flags&f != 0 }
	return PTE{
		Valid: has(Mapped), Sparse: has(Sparse), ReadOnly: has(ReadOnly), Supervisor: has(Supervisor),
		Volatile: has(Volatile), NoAtomics: has(NoAtomics), ACD: has(ACD),
		Target: c.Target, Addr: c.PageAddr(i), Kind: c.Kind,
	}
}

// A word is a page as the card has it, in 64 bits: its Flags, from bit 8 its kind, from bit 16 its
// target, and from addrShift its address in units of SmallPage. No page is 0. It has room for addresses
// of any card, also where no format of tables has.
const (
	kindShift, targetShift, addrShift = 8, 16, 18

	attributes = 1<<addrShift - 1 // of a word: all but the address
	sparseWord = uint64(Sparse)
)

func addressOf(word uint64) uint64 { return word >> addrShift << pageShift }

// mapping returns the change that maps the page of a word, without its place.
func mapping(word uint64) Change {
	return Change{
		Flags: Flags(word), Kind: uint8(word >> kindShift), Target: Target(word >> targetShift & 3),
		Addr: addressOf(word),
	}
}

// attributes returns the word of a valid page entry, without its address.
func (f *Format) attributes(q uint64) uint64 {
	word := f.pte.kind.get(q)<<kindShift | f.pte.target.get(q)<<targetShift
	for _, b := range [...]struct {
		field field
		flag  Flags
	}{
		{f.pte.valid, Mapped}, {f.pte.readOnly, ReadOnly}, {f.pte.supervisor, Supervisor},
		{f.pte.volatile, Volatile}, {f.pte.noAtomics, NoAtomics}, {f.pte.acd, ACD},
	} {
		if b.field.get(q) != 0 {
			word |= uint64(b.flag)
		}
	}
	return word
}

// Card is an address space of the card.
type Card interface {
	// Apply changes the space in the order of the list. One change may cost as much as a call to
	// a host's driver. A range is mapped only where nothing is mapped, or with Over.
	//
	// The first done changes were applied. If that is not all, err says why the card refused the
	// next one, which maps pages; nothing is mapped in its range then. It is [ErrTables] if the same
	// may succeed after others were unmapped and an invalidate. No card refuses to unmap.
	//
	// The list and its Addrs are the caller's again when Apply returns.
	Apply(list []Change) (done int, err error)
}

// ErrTables says that there is no memory for the tables of a change.
var ErrTables = errors.New("no memory left for page tables")

// HasSparse reports whether page entries may be sparse.
func (f *Format) HasSparse() bool { return f.pte.sparse != 0 }

// HasPages reports whether entries of directories of the level may be pages.
func (l *Level) HasPages() bool { return l.dir.pages }

// HasSparse reports whether entries of directories of the level may be sparse.
func (l *Level) HasSparse() bool { return l.dir.sparse != 0 }

// Reaches reports whether page entries can name memory up to an address.
func (f *Format) Reaches(end uint64) bool { return end <= f.physSize }
