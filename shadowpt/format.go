package shadowpt

// Geometry of an address space. Sizes are in bytes.
const (
	VABits = 40
	VASize = 1 << VABits

	DirEntries = 8192
	DirSize    = DirEntries * 8
	dirShift   = 27
	DirSpan    = 1 << dirShift // what one PDE covers

	SmallShift   = 12
	SmallPage    = 1 << SmallShift
	SmallEntries = DirSpan / SmallPage // 32,768
	BigShift     = 17
	BigPage      = 1 << BigShift
	BigEntries   = DirSpan / BigPage // 1,024
)

// bitField is one field of a 64-bit table entry.
type bitField struct {
	Name   string
	Hi, Lo uint8
}

func (f bitField) get(q uint64) uint64 { return q >> f.Lo & (1<<(f.Hi-f.Lo+1) - 1) }

func (f bitField) put(v uint64) uint64 { return v & (1<<(f.Hi-f.Lo+1) - 1) << f.Lo }

// mask is the field's bits in an entry.
func (f bitField) mask() uint64 { return f.put(^uint64(0)) }

// A directory entry: the big table in the low dword, the small one in the high.
var (
	pdeBigTarget   = bitField{"BIG_TARGET", 1, 0}
	pdeSize        = bitField{"SIZE", 3, 2} // 128 MiB >> SIZE are covered
	pdeBigAddr     = bitField{"BIG_ADDRESS", 31, 4}
	pdeSmallTarget = bitField{"SMALL_TARGET", 33, 32}
	pdeSmallAddr   = bitField{"SMALL_ADDRESS", 63, 36}
)

// A page entry.
var (
	pteValid      = bitField{"VALID", 0, 0}
	pteSupervisor = bitField{"SUPERVISOR", 1, 1}
	pteReadOnly   = bitField{"READ_ONLY", 2, 2}
	pteEncrypted  = bitField{"ENCRYPTED", 3, 3}
	pteAddr       = bitField{"ADDRESS", 31, addrLow}
	pteVolatile   = bitField{"VOLATILE", 32, 32}
	pteTarget     = bitField{"TARGET", 34, 33}
	pteKind       = bitField{"KIND", 43, 36}
	pteCompTag    = bitField{"COMPTAG", 60, 44}
)

const (
	addrShift = 12 // every address field counts 4 KiB
	addrLow   = 4  // lowest bit of a page entry's address
)

// Masks for handling many entries without decoding them. copied has the bits that are
// copied to the card.
var (
	valid     = pteValid.mask()
	readOnly  = pteReadOnly.mask()
	inSystem  = pteTarget.put(uint64(SystemCoherent)) & pteTarget.put(uint64(SystemNonCoherent)) // clear in the other targets
	ofAddress = pteAddr.mask()
	copied    = valid | readOnly | pteSupervisor.mask() | pteVolatile.mask() | pteTarget.mask() | pteKind.mask()
	// An entry lets engines write VRAM if only valid is set of writable.
	writable = valid | readOnly | pteTarget.mask()
)

// addressOf returns the address in a page entry, in bytes.
func addressOf(q uint64) uint64 { return q & ofAddress << (addrShift - addrLow) }

// addressed is the reverse of addressOf.
func addressed(addr uint64) uint64 { return addr >> (addrShift - addrLow) & ofAddress }

// Target is the kind of memory of an address, as PTEs and instance blocks encode it.
type Target uint8

const (
	VRAM              Target = 0
	Peer              Target = 1
	SystemCoherent    Target = 2
	SystemNonCoherent Target = 3
)

// System reports whether the target is system memory, reached by bus address.
func (t Target) System() bool { return t == SystemCoherent || t == SystemNonCoherent }

// Table is where a page table lies. PDEs count targets differently from PTEs:
// 0 means there is none, 1 is VRAM.
type Table struct {
	Present bool
	Target  Target
	Addr    uint64 // in bytes, a multiple of 4 KiB
}

func decodeTable(target, addr uint64) Table {
	switch target {
	case 0:
		return Table{}
	case 1:
		return Table{Present: true, Target: VRAM, Addr: addr << addrShift}
	}
	return Table{Present: true, Target: Target(target), Addr: addr << addrShift}
}

func (t Table) encode(target, addr bitField) uint64 {
	if !t.Present {
		return 0
	}
	code := uint64(t.Target)
	if t.Target == VRAM {
		code = 1
	}
	return target.put(code) | addr.put(t.Addr>>addrShift)
}

// PDE is a decoded directory entry.
type PDE struct {
	Big, Small Table
	// Size is the size code: the entry's tables cover DirSpan >> Size bytes.
	Size uint8
}

// DecodePDE decodes a directory entry.
func DecodePDE(q uint64) PDE {
	return PDE{
		Big:   decodeTable(pdeBigTarget.get(q), pdeBigAddr.get(q)),
		Small: decodeTable(pdeSmallTarget.get(q), pdeSmallAddr.get(q)),
		Size:  uint8(pdeSize.get(q)),
	}
}

// Encode is the reverse of DecodePDE. Only VRAM, SystemCoherent and
// SystemNonCoherent tables can be encoded; a Peer table encodes as VRAM would.
func (p PDE) Encode() uint64 {
	return p.Big.encode(pdeBigTarget, pdeBigAddr) |
		p.Small.encode(pdeSmallTarget, pdeSmallAddr) | pdeSize.put(uint64(p.Size))
}

// PTE is a decoded page entry.
type PTE struct {
	Valid, Supervisor, ReadOnly, Encrypted, Volatile bool

	Target  Target
	Addr    uint64 // in bytes, a multiple of 4 KiB
	Kind    uint8  // storage type; 00 is pitch linear
	CompTag uint32
}

// DecodePTE decodes a page entry.
func DecodePTE(q uint64) PTE {
	return PTE{
		Valid:      pteValid.get(q) != 0,
		Supervisor: pteSupervisor.get(q) != 0,
		ReadOnly:   pteReadOnly.get(q) != 0,
		Encrypted:  pteEncrypted.get(q) != 0,
		Volatile:   pteVolatile.get(q) != 0,
		Target:     Target(pteTarget.get(q)),
		Addr:       pteAddr.get(q) << addrShift,
		Kind:       uint8(pteKind.get(q)),
		CompTag:    uint32(pteCompTag.get(q)),
	}
}

// Encode is the reverse of DecodePTE.
func (p PTE) Encode() uint64 {
	q := pteAddr.put(p.Addr>>addrShift) | pteTarget.put(uint64(p.Target)) |
		pteKind.put(uint64(p.Kind)) | pteCompTag.put(uint64(p.CompTag))
	for _, f := range []struct {
		on    bool
		field bitField
	}{
		{p.Valid, pteValid}, {p.Supervisor, pteSupervisor}, {p.ReadOnly, pteReadOnly},
		{p.Encrypted, pteEncrypted}, {p.Volatile, pteVolatile},
	} {
		if f.on {
			q |= f.field.put(1)
		}
	}
	return q
}
