package shadowpt

// Memory reads table entries. ok is false if no memory answers there.
type Memory interface {
	Read64(t Target, addr uint64) (q uint64, ok bool)
}

// Space is an address space as described by an instance block.
type Space struct {
	Dir    uint64 // address of the directory, in bytes
	Target Target
	Limit  uint64 // last valid virtual address
}

// Reason is the reason why a look-up failed, as the MMU fault registers encode it (bits 3:0
// of 00280c).
type Reason uint8

const (
	PTNotPresent       Reason = 0x00 // no table for the address in the directory
	PTTooShort         Reason = 0x01 // the table ends before the address
	PageNotPresent     Reason = 0x02
	VMLimitExceeded    Reason = 0x03
	NoChannel          Reason = 0x04
	PageSystemOnly     Reason = 0x05 // supervisor page
	PageReadOnly       Reason = 0x06
	InvalidStorageType Reason = 0x0c
)

var reasons = map[Reason]string{
	PTNotPresent: "no page table", PTTooShort: "beyond the page table", PageNotPresent: "no page", VMLimitExceeded: "beyond the address space",
	NoChannel: "no instance block", PageSystemOnly: "a supervisor's page", PageReadOnly: "a read-only page", InvalidStorageType: "a kind of page without a meaning",
}

func (r Reason) String() string { return reasons[r] }

// Page is the result of a look-up.
type Page struct {
	VA   uint64 // of the page's first byte
	Size uint64
	PTE
}

// Walk looks va up. On failure ok is false and reason says why. A big page that is valid or
// sparse takes precedence over a small one. A sparse page is found, but not valid.
func (f *Format) Walk(m Memory, s Space, va uint64) (p Page, reason Reason, ok bool) {
	if va > s.Limit || va >= f.VASize() {
		return Page{}, VMLimitExceeded, false
	}
	pde, l, ok := f.entry(m, s, va)
	switch {
	case pde.Sparse:
		return l.page(va, PTE{Sparse: true}), 0, true
	case pde.Page != 0:
		return l.page(va, f.DecodePTE(pde.Page)), 0, true
	case !ok || !pde.Big.Present && !pde.Small.Present:
		return Page{}, PTNotPresent, false
	case va&(l.Span()-1) >= l.Span()>>pde.Size:
		return Page{}, PTTooShort, false
	}
	for i, table := range [...]Table{pde.Big, pde.Small} {
		if !table.Present {
			continue
		}
		q, ok := m.Read64(table.Target, table.Addr+f.Pages[i].Index(va)*8)
		if !ok {
			continue
		}
		pte := f.DecodePTE(q)
		if pte.Valid || pte.Sparse {
			return f.Pages[i].page(va, pte), 0, true
		}
		if pte.NoSmall {
			break
		}
	}
	return Page{}, PageNotPresent, false
}

func (l *Level) page(va uint64, pte PTE) Page {
	return Page{VA: va &^ (l.Span() - 1), Size: l.Span(), PTE: pte}
}

// entry looks up the directory entry that has va's page or its tables, and its level. ok is
// false if there is none.
func (f *Format) entry(m Memory, s Space, va uint64) (pde PDE, l *Level, ok bool) {
	table := Table{Present: true, Target: s.Target, Addr: s.Dir}
	for i := range f.Dirs {
		l = &f.Dirs[i]
		var w Words
		for k := range w[:l.Words] {
			if w[k], ok = m.Read64(table.Target, table.Addr+(l.Index(va)*uint64(l.Words)+uint64(k))*8); !ok {
				return PDE{}, l, false
			}
		}
		pde = l.Decode(w)
		if table = pde.Small; !table.Present && i < len(f.Dirs)-1 {
			return pde, l, pde.Sparse
		}
	}
	return pde, l, true
}
