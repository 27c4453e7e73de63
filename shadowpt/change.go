package shadowpt

import (
	"errors"
	"math"
)

// Change is a change of an address space. Pages of one size, which follow one another in the space
// and in memory, are mapped; or what was mapped in the range no longer is.
type Change struct {
	VA, Size uint64
	Page     uint64 // size of the pages
	Addr     uint64 // of the first page in its Target
	Target   Target
	Kind     uint8 // storage type
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

// PTE returns the first page as an entry of tables.
func (c *Change) PTE() PTE {
	has := func(f Flags) bool { return c.Flags&f != 0 }
	return PTE{
		Valid: has(Mapped), Sparse: has(Sparse), ReadOnly: has(ReadOnly), Supervisor: has(Supervisor),
		Volatile: has(Volatile), NoAtomics: has(NoAtomics), ACD: has(ACD),
		Target: c.Target, Addr: c.Addr, Kind: c.Kind,
	}
}

// A word is a page as the card has it, in 64 bits: its Flags, from bit 8 its kind, from bit 16 its
// target, and from addrShift its address in units of SmallPage. No page is 0. It has room for addresses
// of any card, also where no format of tables has.
const (
	kindShift, targetShift, addrShift = 8, 16, 18

	sparseWord = uint64(Sparse)
	noWord     = math.MaxUint64 // no page is that either
)

// mapping returns the change that maps the page of a word, without its place.
func mapping(word uint64) Change {
	return Change{
		Flags: Flags(word), Kind: uint8(word >> kindShift), Target: Target(word >> targetShift & 3),
		Addr: word >> addrShift << pageShift,
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
	// The list is the caller's again when Apply returns.
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
