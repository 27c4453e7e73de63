package shadowpt

// Geometry of Fermi's address spaces. Sizes are in bytes. SmallPage is that of every format.
const (
	VABits = 40
	VASize = 1 << VABits

	DirEntries = 8192
	DirSize    = DirEntries * 8
	dirShift   = 27
	DirSpan    = 1 << dirShift // what one PDE covers

	SmallShift   = pageShift
	SmallPage    = 1 << SmallShift
	SmallEntries = DirSpan / SmallPage // 32,768
	BigShift     = 17
	BigPage      = 1 << BigShift
	BigEntries   = DirSpan / BigPage // 1,024

	SmallTableSize = SmallEntries * 8
	BigTableSize   = BigEntries * 8

	// GroupEntries is how many small pages share the range of a big one.
	GroupEntries = BigPage / SmallPage
)

// Fermi is the format of GF100: 40 bits, of which 13 choose a directory entry of 128 MiB. It
// names a table of 128 KiB pages in the low dword and one of 4 KiB pages in the high.
var Fermi = Format{
	Name: "fermi",
	Dirs: []Level{{Shift: dirShift, Bits: VABits - dirShift, Words: 1, dir: dirFields{
		tables: [2]tableFields{
			big:   {target: field{0, 2}, addr: field{4, 28}, unit: pageShift},
			small: {target: field{32, 2}, addr: field{36, 28}, unit: pageShift},
		},
		size: field{2, 2}, // 128 MiB >> size are covered
	}}},
	Pages: [2]Level{
		big:   {Shift: BigShift, Bits: dirShift - BigShift, Words: 1},
		small: {Shift: SmallShift, Bits: dirShift - SmallShift, Words: 1},
	},
	pte: pteFields{
		valid: field{0, 1}, supervisor: field{1, 1}, readOnly: field{2, 1}, encrypted: field{3, 1},
		addr: field{4, 28}, volatile: field{32, 1}, target: field{33, 2}, kind: field{36, 8}, compTag: field{44, 17},
	},
}.prepare()

// Encode encodes a directory entry of Fermi.
func (p PDE) Encode() uint64 { return Fermi.last().Encode(p)[0] }

// DecodePTE decodes a page entry of Fermi.
func DecodePTE(q uint64) PTE { return Fermi.DecodePTE(q) }

// Encode is the reverse of DecodePTE.
func (p PTE) Encode() uint64 { return Fermi.EncodePTE(p) }

// Walk looks va up in tables of Fermi.
func Walk(m Memory, s Space, va uint64) (p Page, reason Reason, ok bool) { return Fermi.Walk(m, s, va) }
