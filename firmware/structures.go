package firmware

import (
	"fmt"
	"slices"
)

// Signatures of an image and of its PCI data structure.
const (
	signatureROM  = 0xaa55     // 55 aa: a PCI expansion ROM image
	signaturePCIR = 0x52494350 // "PCIR"
)

// codeX86 is the code type of a VBIOS (PCIR byte 14h).
const codeX86 = 0x00

// indicatorLast in the PCIR indicator byte marks the last image of the file.
const indicatorLast = 0x80

// romHeader opens every image. Only the first image of a VBIOS has the DCB pointer.
var romHeader = layout{"ROM header", 0x38, []row{
	{0x00, 2, "", "Signature", "", "aa55 opens a PCI ROM image"},
	{0x02, 1, "", "Size512", "bytes512", "image size in 512-byte units"},
	{0x03, 1, "", "EntryPoint", "", "first byte of the x86 entry code; cb is a far return"},
	{0x18, 2, "", "PCIR", "pointer", "PCI data structure, from the image's start"},
	{0x36, 2, "", "DCB", "pointer", "device control block"},
}}

// romHeaderShort is the part of the ROM header that every PCI ROM image has.
const romHeaderShort = 0x1a

// pcir is the PCI data structure of an image (PCI Firmware Specification).
var pcir = layout{"PCIR", 0x18, []row{
	{0x00, 4, "", "Signature", "text4", "structure name"},
	{0x04, 2, "", "Vendor", "", "PCI vendor id"},
	{0x06, 2, "", "Device", "", "PCI device id"},
	{0x08, 2, "", "DeviceList", "pointer", "vital product data (revision 0) or list of further device ids"},
	{0x0a, 2, "", "Length", "", "length of this structure"},
	{0x0c, 1, "", "Revision", "", "revision of this structure"},
	{0x0d, 3, "", "Class", "class", "PCI class code"},
	{0x10, 2, "", "ImageLength", "bytes512", "image size in 512-byte units"},
	{0x12, 2, "", "CodeRevision", "", "revision of the code, the vendor's own"},
	{0x14, 1, "", "CodeType", "code", "use of the image"},
	{0x15, 1, "", "Indicator", "last", "bit 7: last image"},
	{0x16, 2, "", "RunTimeSize", "bytes512", "largest run-time size in 512-byte units (revision 3)"},
}}

// pcirShort is as much of PCIR as an image must have: all but the last, newer field.
const pcirShort = 0x16

// className names the display classes of the PCI class code.
func className(class uint64) string {
	switch class >> 8 {
	case 0x0300:
		return "VGA controller"
	case 0x0302:
		return "3D controller"
	case 0x0380:
		return "display controller"
	}
	return fmt.Sprintf("class %02x, subclass %02x", class>>16, class>>8&0xff)
}

var codeTypeName = oneOf(map[uint64]string{
	codeX86: "x86 BIOS", 0x01: "Open Firmware", 0x02: "PA-RISC", 0x03: "EFI",
})

func lastName(x uint64) string {
	if x&indicatorLast != 0 {
		return "last image"
	}
	return "more follow"
}

// sum8 adds up bytes, modulo 256. The bytes of an x86 image add up to zero.
func sum8(b []byte) uint8 {
	var s uint8
	for _, x := range b {
		s += x
	}
	return s
}

// bitMagic opens the BIOS Information Table, wherever in the file it is.
var bitMagic = []byte{0xff, 0xb8, 'B', 'I', 'T'}

const (
	bitID        = 0xb8ff
	bitSignature = 0x00544942 // "BIT", 0
	bitVersion   = 0x0100     // 1.00
)

// bitHeader opens the BIOS Information Table: a list of tokens, each a pointer to data of one kind.
var bitHeader = layout{"BIT header", 0x0c, []row{
	{0x00, 2, "", "ID", "", "b8ff"},
	{0x02, 4, "", "Signature", "text4", "structure name"},
	{0x06, 2, "", "Version", "", "1.00 is 0100, in BCD"},
	{0x08, 1, "", "HeaderSize", "", "bytes in this header"},
	{0x09, 1, "", "EntrySize", "", "bytes in one token"},
	{0x0a, 1, "", "Entries", "decimal", "number of tokens"},
	{0x0b, 1, "", "Checksum", "", "makes the header's bytes add up to 0"},
}}

// tokenSize is the size of a BIT token: id, version, 2 bytes of size, 2 bytes of pointer.
const tokenSize = 6

// tokenNames are the names of tokens whose meaning is known.
var tokenNames = map[uint8]string{
	'2': "I2C scripts", 'A': "analog outputs", 'B': "BIOS data", 'C': "clocks and PLLs", 'D': "digital flat panels",
	'I': "init scripts", 'L': "LVDS", 'M': "memory", 'N': "nothing", 'P': "performance and power", 'S': "strings",
	'T': "TMDS", 'U': "display scripts", 'V': "virtual straps", 'c': "32-bit code", 'd': "DisplayPort", 'i': "BIOS information",
	'p': "falcon microcode", 'u': "UEFI", 'x': "MXM",
}

// A tokenKind is a BIT token whose data the package understands.
type tokenKind struct {
	version uint8
	least   int // bytes of data that a driver must find
	layout  layout
	table   *table // what one of its pointers leads to; others are given by their place only
}

// A table has a header of its own geometry, then entries. The scripts of an 'I' token are no such table.
type table struct {
	pointer string // field of the token that leads here
	missing string // warning for a token without the table
	needed  bool   // without the table, or with one of another version, the token is not understood

	header  layout
	version uint8
	entry   layout
	limits  *layout // what the entries' LimitsAt leads to
}

var tokenKinds = map[uint8]*tokenKind{
	'i': {2, 15, layout{"BIT 'i'", 0x20, []row{
		{0x00, 1, "", "Micro", "", "version, fourth part"},
		{0x01, 1, "", "Minor", "", "version, third part"},
		{0x02, 1, "", "Chip", "", "version, second part: the chip; 00 is GF100"},
		{0x03, 1, "", "Major", "", "version, first part: the family; 70 is GT21x and Fermi"},
		{0x04, 1, "", "Patch", "", "version, fifth part: the board vendor's"},
		{0x05, 1, "", "Feature", "", "feature bits; 4 is a mobile board"},
		{0x0d, 2, "", "DACLoad", ptr, "analog load detection values"},
		{0x0f, 8, "", "Date", "", "build date"},
		{0x17, 2, "", "RealDevice", "", "device id behind a bridge chip, else 0"},
	}}, nil},
	// Scripts run in order when a driver finds the board not yet set up; each must end with an
	// opcode that ends it, 71 (DONE).
	'I': {1, 14, layout{"BIT 'I'", 0x1c, []row{
		{0x00, 2, "", "ScriptTable", ptr, "script table: pointers, ended by 0"},
		{0x02, 2, "", "MacroIndex", ptr, "macro index table"},
		{0x04, 2, "", "Macro", ptr, "macro table: register, value"},
		{0x06, 2, "", "Condition", ptr, "condition table: register, mask, value"},
		{0x08, 2, "", "IOCondition", ptr, "I/O port condition table"},
		{0x0a, 2, "", "IOFlagCondition", ptr, "I/O flag condition table"},
		{0x0c, 2, "", "Function", ptr, "function table"},
		{0x0e, 2, "", "ExtraScript", ptr, "script that runs after the others"},
		{0x10, 2, "", "Xlat", ptr, "translation tables"},
	}}, nil},
	'C': {2, 4, layout{"BIT 'C'", 4, []row{{0x00, 4, "", "PLLTable", ptr, "PLL table"}}}, &plls},
	'P': {2, 0, layout{"BIT 'P'", 0x5c, []row{
		{0x00, 4, "", "Perf", ptr, "performance levels"},
		{0x04, 4, "", "RAMMap", ptr, "memory timing map"},
		{0x08, 4, "", "Timing", ptr, "memory timings"},
		{0x0c, 4, "", "Volt", ptr, "voltages"},
		{0x10, 4, "", "Therm", ptr, "thermal thresholds"},
		{0x14, 4, "", "Unk14", ptr, ""},
		{0x18, 4, "", "Unk18", ptr, ""},
		{0x1c, 4, "", "Unk1c", ptr, "a script"},
		{0x20, 4, "", "VoltMap", ptr, "voltage map"},
		{0x24, 4, "", "Unk24", ptr, ""},
		{0x28, 4, "", "PowerSense", ptr, "current sensors"},
		{0x2c, 4, "", "PowerBudget", ptr, "power limits"},
		{0x30, 4, "", "Boost", ptr, "clock ranges"},
		{0x34, 4, "", "CStep", ptr, "clock steps"},
		{0x38, 4, "", "BaseClock", ptr, "virtual performance states"},
		{0x3c, 4, "", "Unk3c", ptr, ""},
		{0x40, 4, "", "Unk40", ptr, ""},
		{0x44, 4, "", "Unk44", ptr, ""},
		{0x48, 4, "", "Unk48", ptr, ""},
		{0x4c, 4, "", "Unk4c", ptr, ""},
		{0x50, 4, "", "Unk50", ptr, ""},
		{0x54, 4, "", "Unk54", ptr, ""},
		{0x58, 4, "", "Fan", ptr, "fan"},
	}}, nil},
	'M': {2, 5, layout{"BIT 'M'", 0x0f, []row{
		{0x00, 1, "", "Groups", "decimal", "RAM configurations that scripts give values for"},
		{0x01, 2, "", "StrapMap", ptr, "RAM strap to configuration"}, // 0 for one to one
		{0x03, 2, "", "TypeTable", ptr, "M0203, memory types"},
		{0x05, 2, "", "Training", ptr, "M0205, link training"},
		{0x09, 2, "", "Patterns", ptr, "M0209, training patterns"},
		{0x0d, 2, "", "Unk0d", ptr, ""},
	}}, &memoryTypes},
	'A': {1, 3, layout{"BIT 'A'", 3, []row{
		{0x00, 2, "", "LoadTable", ptr, "analog load table"},
		{0x02, 1, "", "Unk02", "", ""},
	}}, &analogLoads},
	'D': {1, 4, layout{"BIT 'D'", 4, []row{
		{0x00, 2, "", "Unk00", "", ""},
		{0x02, 2, "", "PanelTable", ptr, "flat panel table"},
	}}, nil},
	'L': {1, 2, layout{"BIT 'L'", 2, []row{{0x00, 2, "", "ManufacturerTable", ptr, "LVDS manufacturer table"}}}, nil},
	'T': {1, 2, layout{"BIT 'T'", 2, []row{{0x00, 2, "", "Table", ptr, "TMDS table"}}}, nil},
}

// tableHeader opens tables that begin with their own geometry in this order.
var tableHeader = []row{
	{0x00, 1, "", "Version", "version8", "table version"},
	{0x01, 1, "", "HeaderSize", "", "bytes in this header"},
	{0x02, 1, "", "EntrySize", "", "bytes in one entry"},
	{0x03, 1, "", "Entries", "decimal", "number of entries"},
}

const tableHeaderSize = 4

var analogLoads = table{
	pointer: "LoadTable", missing: "has no analog load table", needed: true,
	header: layout{"analog load table", tableHeaderSize, tableHeader}, version: 0x10,
	entry: layout{"analog load", 4, []row{{0x00, 4, "", "Load", "", "load detection value"}}},
}

// Memory types in the M0203 table.
const (
	MemoryDDR2  = 0x0
	MemoryDDR3  = 0x1
	MemoryGDDR3 = 0x2
	MemoryGDDR5 = 0x3
	memorySkip  = 0xf // no memory is fitted with this strap
)

var memoryTypeName = oneOf(map[uint64]string{
	MemoryDDR2: "DDR2", MemoryDDR3: "DDR3", MemoryGDDR3: "GDDR3", MemoryGDDR5: "GDDR5", memorySkip: "skip",
})

// memoryTypes is M0203. An entry is the meaning of a value of the RAM strap (NV_PEXTDEV_BOOT_0 bits 5:2).
var memoryTypes = table{
	pointer: "TypeTable", missing: "has no memory type table (M0203): drivers cannot tell the kind of memory",
	header: layout{"M0203", 7, slices.Concat(tableHeader, []row{
		{0x04, 1, "", "Match", "match", "how an entry is chosen"},
		{0x05, 2, "", "Pointer", ptr, ""},
	})}, version: 0x10,
	entry: layout{"memory type", 2, []row{
		{0x00, 1, "3:0", "Type", "memory", "kind of memory"},
		{0x00, 1, "7:4", "Strap", "decimal", "RAM strap"},
		{0x01, 1, "3:0", "Group", "decimal", "configuration"},
	}},
}

// PLL kinds in the PLL table.
const (
	pllCore      = 0x01
	pllShader    = 0x02
	pllMemory    = 0x04
	pllVideo     = 0x05
	pllMemoryRef = 0x0c
)

var pllTypeName = oneOf(map[uint64]string{
	pllCore: "core", pllShader: "shader", pllMemory: "memory", pllVideo: "video decoder", pllMemoryRef: "memory reference",
	0x80: "display head 0", 0x81: "display head 1", 0x82: "display head 2", 0x83: "display head 3",
})

var plls = table{
	pointer: "PLLTable", missing: "has no PLL table", needed: true,
	header: layout{"PLL table", tableHeaderSize, tableHeader}, version: 0x40,
	entry: layout{"PLL", 11, []row{
		{0x00, 1, "", "Type", "pll", "which PLL"},
		{0x01, 2, "", "LimitsAt", ptr, "its limits"},
		{0x03, 4, "", "Register", "", "control register in BAR0"},
		{0x07, 2, "", "Unk07", "", ""},
		{0x09, 2, "", "Reference", "mhz", "reference clock; 0 is the crystal"},
	}},
	limits: &pllLimits,
}

// pllLimits bound a PLL: its oscillator and input in MHz, and the dividers of out = in * N / M / P.
var pllLimits = layout{"PLL limits", 14, []row{
	{0x00, 2, "", "MinVCO", "mhz", "oscillator, lowest"},
	{0x02, 2, "", "MaxVCO", "mhz", "oscillator, highest"},
	{0x04, 2, "", "MinInput", "mhz", "input, lowest"},
	{0x06, 2, "", "MaxInput", "mhz", "input, highest"},
	{0x08, 1, "", "MinM", "decimal", "input divider"},
	{0x09, 1, "", "MaxM", "decimal", ""},
	{0x0a, 1, "", "MinN", "decimal", "multiplier"},
	{0x0b, 1, "", "MaxN", "decimal", ""},
	{0x0c, 1, "", "MinP", "decimal", "output divider"},
	{0x0d, 1, "", "MaxP", "decimal", ""},
}}

const (
	dcbSignature   = 0x4edcbdcb
	dcbOldest      = 0x30 // older device control blocks have another header
	dcbNewest      = 0x41
	dcbHeaderLeast = 0x17 // newer headers have more pointers
)

// dcb is the device control block, version 3.0 to 4.1: the outputs of the board and where to find
// the tables about them.
var dcb = layout{"DCB", 0x1b, []row{
	{0x00, 1, "", "Version", "version8", "table version"},
	{0x01, 1, "", "HeaderSize", "", "bytes in this header"},
	{0x02, 1, "", "Entries", "decimal", "number of outputs"},
	{0x03, 1, "", "EntrySize", "", "bytes in one output entry"},
	{0x04, 2, "", "I2C", ptr, "I2C bus table"},
	{0x06, 4, "", "Signature", "", "4edcbdcb"},
	{0x0a, 2, "", "GPIO", ptr, "GPIO table"},
	{0x0c, 2, "", "InputDevices", ptr, "input device table"},
	{0x0e, 2, "", "PersonalCinema", ptr, "personal cinema table"},
	{0x10, 2, "", "SpreadSpectrum", ptr, "spread spectrum table"},
	{0x12, 2, "", "I2CDevices", ptr, "external device table"},
	{0x14, 2, "", "Connectors", ptr, "connector table"},
	{0x16, 1, "", "Flags", "", "board flags"},
	{0x17, 2, "", "HDTV", ptr, "HDTV translation table"},
	{0x19, 2, "", "Switched", ptr, "switched output table"},
}}

var outputTypeName = oneOf(map[uint64]string{
	0x0: "analog", 0x1: "TV", 0x2: "TMDS", 0x3: "LVDS", 0x6: "DisplayPort",
	0xe: "end of list", 0xf: "unused",
})

// dcbOutput is one output path of the board.
var dcbOutput = layout{"DCB output", 8, []row{
	{0x00, 4, "3:0", "Type", "output", "kind of output"},
	{0x00, 4, "7:4", "I2C", "decimal", "I2C bus of the EDID, 15 for none"},
	{0x00, 4, "11:8", "Heads", "", "mask of display heads"},
	{0x00, 4, "15:12", "Connector", "decimal", "connector"},
	{0x00, 4, "19:16", "Bus", "decimal", "outputs of one bus exclude each other"},
	{0x00, 4, "21:20", "Location", "location", "where the encoder is"},
	{0x00, 4, "23:22", "Unk22", "", ""},
	{0x00, 4, "27:24", "OR", "", "mask of output resources"},
	{0x00, 4, "31:28", "Unk28", "", ""},
	{0x04, 4, "", "Specific", "", "depends on the kind"},
}}
