package firmware

import "fmt"

// bitMagic opens the BIOS Information Table, wherever in the file it is.
var bitMagic = []byte{0xff, 0xb8, 'B', 'I', 'T'}

const (
	bitID        = 0xb8ff
	bitSignature = 0x00544942 // "BIT", 0
	bitVersion   = 0x0100     // 1.00
)

// BITHeader opens the BIOS Information Table: a list of tokens, each a
// pointer to data of one kind.
type BITHeader struct {
	ID         uint16 `json:"id"`
	Signature  uint32 `json:"signature"`
	Version    uint16 `json:"version"`
	HeaderSize uint8  `json:"header_size"`
	TokenSize  uint8  `json:"token_size"`
	Tokens     uint8  `json:"tokens"`
	Checksum   uint8  `json:"checksum"`
}

var bitHeaderLayout = layout[BITHeader]{"BIT header", 0x0c, []row{
	f(0x00, 2, "ID", "b8ff"),
	f(0x02, 4, "Signature", "structure name").as(text4),
	f(0x06, 2, "Version", "1.00 is 0100, in BCD"),
	f(0x08, 1, "HeaderSize", "bytes in this header"),
	f(0x09, 1, "TokenSize", "bytes in one token"),
	f(0x0a, 1, "Tokens", "number of tokens").as(decimal),
	f(0x0b, 1, "Checksum", "makes the header's bytes add up to 0"),
}}

// bitToken is one entry of the BIT.
type bitToken struct {
	ID      uint8
	Version uint8
	Size    uint16
	Pointer uint16
}

var bitTokenLayout = layout[bitToken]{"BIT token", 6, []row{
	f(0x00, 1, "ID", "kind of the data"),
	f(0x01, 1, "Version", "version of the data"),
	f(0x02, 2, "Size", "bytes of data"),
	f(0x04, 2, "Pointer", "the data").ptr(),
}}

// tokenNames are the names of tokens whose data is understood. Other tokens are kept raw.
var tokenNames = map[uint8]string{
	'2': "I2C scripts", 'A': "analog outputs", 'B': "BIOS data", 'C': "clocks and PLLs", 'D': "digital flat panels",
	'I': "init scripts", 'L': "LVDS", 'M': "memory", 'N': "nothing", 'P': "performance and power", 'S': "strings",
	'T': "TMDS", 'U': "display scripts", 'V': "virtual straps", 'c': "32-bit code", 'd': "DisplayPort", 'i': "BIOS information",
	'p': "falcon microcode", 'u': "UEFI", 'x': "MXM",
}

// Info is the 'i' token, version 2: the version of the VBIOS.
type Info struct {
	Micro      uint8  `json:"micro"`
	Minor      uint8  `json:"minor"`
	Chip       uint8  `json:"chip"`
	Major      uint8  `json:"major"`
	Patch      uint8  `json:"patch"`
	Feature    uint8  `json:"feature"`
	DACLoad    uint16 `json:"dac_load"`
	Date       string `json:"date"`
	RealDevice uint16 `json:"real_device"`
}

// Version is the version as tools print it, such as 70.00.21.00.02.
func (i Info) Version() string {
	return fmt.Sprintf("%02x.%02x.%02x.%02x.%02x", i.Major, i.Chip, i.Minor, i.Micro, i.Patch)
}

var infoLayout = layout[Info]{"BIT 'i'", 0x20, []row{
	f(0x00, 1, "Micro", "version, fourth part"),
	f(0x01, 1, "Minor", "version, third part"),
	f(0x02, 1, "Chip", "version, second part: the chip; 00 is GF100"),
	f(0x03, 1, "Major", "version, first part: the family; 70 is GT21x and Fermi"),
	f(0x04, 1, "Patch", "version, fifth part: the board vendor's"),
	f(0x05, 1, "Feature", "feature bits; 4 is a mobile board"),
	f(0x0d, 2, "DACLoad", "analog load detection values").ptr(),
	f(0x0f, 8, "Date", "build date"),
	f(0x17, 2, "RealDevice", "device id behind a bridge chip, else 0"),
}}

// initPointers is the 'I' token, version 1: where the init scripts and their tables are.
type initPointers struct {
	ScriptTable     uint16
	MacroIndex      uint16
	Macro           uint16
	Condition       uint16
	IOCondition     uint16
	IOFlagCondition uint16
	Function        uint16
	ExtraScript     uint16
	Xlat            uint16
}

var initLayout = layout[initPointers]{"BIT 'I'", 0x1c, []row{
	f(0x00, 2, "ScriptTable", "script table: pointers, ended by 0").ptr(),
	f(0x02, 2, "MacroIndex", "macro index table").ptr(),
	f(0x04, 2, "Macro", "macro table: register, value").ptr(),
	f(0x06, 2, "Condition", "condition table: register, mask, value").ptr(),
	f(0x08, 2, "IOCondition", "I/O port condition table").ptr(),
	f(0x0a, 2, "IOFlagCondition", "I/O flag condition table").ptr(),
	f(0x0c, 2, "Function", "function table").ptr(),
	f(0x0e, 2, "ExtraScript", "script that runs after the others").ptr(),
	f(0x10, 2, "Xlat", "translation tables").ptr(),
}}

// clockPointers is the 'C' token, version 2.
type clockPointers struct {
	PLLTable uint32
}

var clockLayout = layout[clockPointers]{"BIT 'C'", 4, []row{
	f(0x00, 4, "PLLTable", "PLL table").ptr(),
}}

// Perf is the 'P' token, version 2: pointers to the performance, voltage,
// thermal and power tables, 0 where there is none. The tables themselves are
// not decoded.
type Perf struct {
	Perf        uint32 `json:"perf"`
	RAMMap      uint32 `json:"ram_map"`
	Timing      uint32 `json:"timing"`
	Volt        uint32 `json:"volt"`
	Therm       uint32 `json:"therm"`
	Unk14       uint32 `json:"unk14"`
	Unk18       uint32 `json:"unk18"`
	Unk1c       uint32 `json:"unk1c"`
	VoltMap     uint32 `json:"volt_map"`
	Unk24       uint32 `json:"unk24"`
	PowerSense  uint32 `json:"power_sense"`
	PowerBudget uint32 `json:"power_budget"`
	Boost       uint32 `json:"boost"`
	CStep       uint32 `json:"clock_steps"`
	BaseClock   uint32 `json:"base_clock"`
	Unk3c       uint32 `json:"unk3c"`
	Unk40       uint32 `json:"unk40"`
	Unk44       uint32 `json:"unk44"`
	Unk48       uint32 `json:"unk48"`
	Unk4c       uint32 `json:"unk4c"`
	Unk50       uint32 `json:"unk50"`
	Unk54       uint32 `json:"unk54"`
	Fan         uint32 `json:"fan"`
}

var perfLayout = layout[Perf]{"BIT 'P'", 0x5c, []row{
	f(0x00, 4, "Perf", "performance levels").ptr(),
	f(0x04, 4, "RAMMap", "memory timing map").ptr(),
	f(0x08, 4, "Timing", "memory timings").ptr(),
	f(0x0c, 4, "Volt", "voltages").ptr(),
	f(0x10, 4, "Therm", "thermal thresholds").ptr(),
	f(0x14, 4, "Unk14", "").ptr(),
	f(0x18, 4, "Unk18", "").ptr(),
	f(0x1c, 4, "Unk1c", "a script").ptr(),
	f(0x20, 4, "VoltMap", "voltage map").ptr(),
	f(0x24, 4, "Unk24", "").ptr(),
	f(0x28, 4, "PowerSense", "current sensors").ptr(),
	f(0x2c, 4, "PowerBudget", "power limits").ptr(),
	f(0x30, 4, "Boost", "clock ranges").ptr(),
	f(0x34, 4, "CStep", "clock steps").ptr(),
	f(0x38, 4, "BaseClock", "virtual performance states").ptr(),
	f(0x3c, 4, "Unk3c", "").ptr(),
	f(0x40, 4, "Unk40", "").ptr(),
	f(0x44, 4, "Unk44", "").ptr(),
	f(0x48, 4, "Unk48", "").ptr(),
	f(0x4c, 4, "Unk4c", "").ptr(),
	f(0x50, 4, "Unk50", "").ptr(),
	f(0x54, 4, "Unk54", "").ptr(),
	f(0x58, 4, "Fan", "fan").ptr(),
}}

// Panels is the 'D' token, version 1.
type Panels struct {
	Unk00      uint16 `json:"unk00"`
	PanelTable uint16 `json:"panel_table"`
}

var panelsLayout = layout[Panels]{"BIT 'D'", 4, []row{
	f(0x00, 2, "Unk00", ""),
	f(0x02, 2, "PanelTable", "flat panel table").ptr(),
}}

// LVDS is the 'L' token, version 1.
type LVDS struct {
	ManufacturerTable uint16 `json:"manufacturer_table"`
}

var lvdsLayout = layout[LVDS]{"BIT 'L'", 2, []row{
	f(0x00, 2, "ManufacturerTable", "LVDS manufacturer table").ptr(),
}}

// TMDS is the 'T' token, version 1.
type TMDS struct {
	Table uint16 `json:"table"`
}

var tmdsLayout = layout[TMDS]{"BIT 'T'", 2, []row{
	f(0x00, 2, "Table", "TMDS table").ptr(),
}}

// analogPointers is the 'A' token, version 1.
type analogPointers struct {
	LoadTable uint16
	Unk02     uint8
}

var analogLayout = layout[analogPointers]{"BIT 'A'", 3, []row{
	f(0x00, 2, "LoadTable", "analog load table").ptr(),
	f(0x02, 1, "Unk02", ""),
}}

// tableHeader is the header of tables that begin with their own geometry in this order.
type tableHeader struct {
	Version    uint8
	HeaderSize uint8
	EntrySize  uint8
	Entries    uint8
}

var tableHeaderRows = []row{
	f(0x00, 1, "Version", "table version").as(version8),
	f(0x01, 1, "HeaderSize", "bytes in this header"),
	f(0x02, 1, "EntrySize", "bytes in one entry"),
	f(0x03, 1, "Entries", "number of entries").as(decimal),
}

// Analog is the analog load table of the 'A' token: version 1.0, two entries
// of four bytes.
type Analog struct {
	Loads []uint32 `json:"loads"`
	Unk02 uint8    `json:"unk02"`
}

const analogVersion = 0x10

var analogTableLayout = layout[tableHeader]{"analog load table", 4, tableHeaderRows}

type analogLoad struct{ Load uint32 }

var analogLoadLayout = layout[analogLoad]{"analog load", 4, []row{
	f(0x00, 4, "Load", "load detection value"),
}}
