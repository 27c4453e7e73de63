package shadowpt

// hopperTable says where a table of 4 KiB, a directory or one of small pages, is.
var hopperTable = tableFields{target: field{1, 2}, addr: field{12, 40}, unit: 12}

// hopperDir returns a level of directories with one table an entry.
func hopperDir(shift, bits uint8) Level {
	return Level{Shift: shift, Bits: bits, Words: 1, dir: dirFields{
		tables: [2]tableFields{small: hopperTable},
		// Pages are declared for 512 MiB, but no driver makes them.
		page: 1, sparseMask: hopperSparseMask, sparse: hopperSparse,
	}}
}

// A directory entry without a table is sparse if its attributes are 1 or 3.
const (
	hopperSparseMask = 1<<5 | 1<<3 | 3<<1 | 1
	hopperSparse     = 1 << 3
)

// Hopper is the format of GH100, version 3: 57 bits and five levels of directories. An entry of
// the last has two words and covers 2 MiB. The first word names a table of 64 KiB pages, or is
// the entry of a 2 MiB page; the second names a table of 4 KiB pages.
var Hopper = Format{
	Name: "hopper",
	Dirs: []Level{
		hopperDir(56, 1), hopperDir(47, 9), hopperDir(38, 9), hopperDir(29, 9),
		{Shift: 21, Bits: 8, Words: 2, dir: dirFields{
			tables: [2]tableFields{
				big:   {target: field{1, 2}, addr: field{8, 44}, unit: 8},
				small: {word: 1, target: hopperTable.target, addr: hopperTable.addr, unit: hopperTable.unit},
			},
			page: 1, pages: true, sparseMask: hopperSparseMask, sparse: hopperSparse,
		}},
	},
	Pages: [2]Level{
		big:   {Shift: 16, Bits: 5, Words: 1},
		small: {Shift: pageShift, Bits: 9, Words: 1},
	},
	pte: pteFields{
		valid: field{0, 1}, target: field{1, 2}, kind: field{8, 4}, addr: field{12, 40},
		volatile: field{3, 1}, supervisor: field{4, 1}, readOnly: field{5, 1}, noAtomics: field{6, 1}, acd: field{7, 1},
		unmapped: field{3, 5}, sparse: 1, noSmall: 3,
	},
}.prepare()
