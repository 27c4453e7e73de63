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

// Page is the result of a look-up.
type Page struct {
	VA   uint64 // of the page's first byte
	Size uint64 // SmallPage or BigPage
	PTE
}

// Walk looks va up. On failure ok is false and reason says why. A valid big page takes
// precedence over a small one.
func Walk(m Memory, s Space, va uint64) (p Page, reason Reason, ok bool) {
	if va > s.Limit || va >= VASize {
		return Page{}, VMLimitExceeded, false
	}
	q, ok := m.Read64(s.Target, s.Dir+va>>dirShift*8)
	if !ok {
		return Page{}, PTNotPresent, false
	}
	pde := DecodePDE(q)
	if !pde.Big.Present && !pde.Small.Present {
		return Page{}, PTNotPresent, false
	}
	if va%DirSpan >= DirSpan>>pde.Size {
		return Page{}, PTTooShort, false
	}
	for _, level := range [...]struct {
		table Table
		shift uint
	}{{pde.Big, BigShift}, {pde.Small, SmallShift}} {
		if p, ok := level.table.lookup(m, va, level.shift); ok {
			return p, 0, true
		}
	}
	return Page{}, PageNotPresent, false
}

func (t Table) lookup(m Memory, va uint64, shift uint) (Page, bool) {
	if !t.Present {
		return Page{}, false
	}
	q, ok := m.Read64(t.Target, t.Addr+va%DirSpan>>shift*8)
	if !ok {
		return Page{}, false
	}
	pte := DecodePTE(q)
	if !pte.Valid {
		return Page{}, false
	}
	size := uint64(1) << shift
	return Page{VA: va &^ (size - 1), Size: size, PTE: pte}, true
}
