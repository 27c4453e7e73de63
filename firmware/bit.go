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
	ID         uint16 `json:"id" rom:"00" means:"b8ff"`
	Signature  uint32 `json:"signature" rom:"02 text4" means:"structure name"`
	Version    uint16 `json:"version" rom:"06" means:"1.00 is 0100, in BCD"`
	HeaderSize uint8  `json:"header_size" rom:"08" means:"bytes in this header"`
	TokenSize  uint8  `json:"token_size" rom:"09" means:"bytes in one token"`
	Tokens     uint8  `json:"tokens" rom:"0a decimal" means:"number of tokens"`
	Checksum   uint8  `json:"checksum" rom:"0b" means:"makes the header's bytes add up to 0"`
}

var bitHeaderLayout = layoutOf[BITHeader]("BIT header", 0x0c)

// bitToken is one entry of the BIT.
type bitToken struct {
	ID      uint8  `rom:"00" means:"kind of the data"`
	Version uint8  `rom:"01" means:"version of the data"`
	Size    uint16 `rom:"02" means:"bytes of data"`
	Pointer uint16 `rom:"04 ptr" means:"the data"`
}

var bitTokenLayout = layoutOf[bitToken]("BIT token", 6)

// tokenNames are the names of tokens whose data is understood. Other tokens are kept raw.
var tokenNames = map[uint8]string{
	'2': "I2C scripts", 'A': "analog outputs", 'B': "BIOS data", 'C': "clocks and PLLs", 'D': "digital flat panels",
	'I': "init scripts", 'L': "LVDS", 'M': "memory", 'N': "nothing", 'P': "performance and power", 'S': "strings",
	'T': "TMDS", 'U': "display scripts", 'V': "virtual straps", 'c': "32-bit code", 'd': "DisplayPort", 'i': "BIOS information",
	'p': "falcon microcode", 'u': "UEFI", 'x': "MXM",
}

// Info is the 'i' token, version 2: the version of the VBIOS.
type Info struct {
	Micro      uint8  `json:"micro" rom:"00" means:"version, fourth part"`
	Minor      uint8  `json:"minor" rom:"01" means:"version, third part"`
	Chip       uint8  `json:"chip" rom:"02" means:"version, second part: the chip; 00 is GF100"`
	Major      uint8  `json:"major" rom:"03" means:"version, first part: the family; 70 is GT21x and Fermi"`
	Patch      uint8  `json:"patch" rom:"04" means:"version, fifth part: the board vendor's"`
	Feature    uint8  `json:"feature" rom:"05" means:"feature bits; 4 is a mobile board"`
	DACLoad    uint16 `json:"dac_load" rom:"0d ptr" means:"analog load detection values"`
	Date       string `json:"date" rom:"0f.8" means:"build date"`
	RealDevice uint16 `json:"real_device" rom:"17" means:"device id behind a bridge chip, else 0"`
}

// Version is the version as tools print it, such as 70.00.21.00.02.
func (i Info) Version() string {
	return fmt.Sprintf("%02x.%02x.%02x.%02x.%02x", i.Major, i.Chip, i.Minor, i.Micro, i.Patch)
}

var infoLayout = layoutOf[Info]("BIT 'i'", 0x20)

// InitTables is the 'I' token, version 1. Scripts run in order when a driver finds the board not
// yet set up; each must end with an opcode that ends it, 71 (DONE). The tables that scripts may use
// are given by their place only.
type InitTables struct {
	Scripts         []HexBytes `json:"scripts"`
	Extra           HexBytes   `json:"extra,omitempty"` // runs last
	ScriptTable     uint16     `json:"-" rom:"00 ptr" means:"script table: pointers, ended by 0"`
	MacroIndex      uint16     `json:"macro_index" rom:"02 ptr" means:"macro index table"`
	Macro           uint16     `json:"macro" rom:"04 ptr" means:"macro table: register, value"`
	Condition       uint16     `json:"condition" rom:"06 ptr" means:"condition table: register, mask, value"`
	IOCondition     uint16     `json:"io_condition" rom:"08 ptr" means:"I/O port condition table"`
	IOFlagCondition uint16     `json:"io_flag_condition" rom:"0a ptr" means:"I/O flag condition table"`
	Function        uint16     `json:"function" rom:"0c ptr" means:"function table"`
	ExtraScript     uint16     `json:"-" rom:"0e ptr" means:"script that runs after the others"`
	Xlat            uint16     `json:"xlat" rom:"10 ptr" means:"translation tables"`
}

var initLayout = layoutOf[InitTables]("BIT 'I'", 0x1c)

// Clocks is the 'C' token, version 2, with the PLL table, version 4.0.
type Clocks struct {
	PLLs     []PLL  `json:"plls"` // at most 255
	PLLTable uint32 `json:"-" rom:"00 ptr" means:"PLL table"`
}

var clockLayout = layoutOf[Clocks]("BIT 'C'", 4)

// Perf is the 'P' token, version 2: pointers to the performance, voltage,
// thermal and power tables, 0 where there is none. The tables themselves are
// not decoded.
type Perf struct {
	Perf        uint32 `json:"perf" rom:"00 ptr" means:"performance levels"`
	RAMMap      uint32 `json:"ram_map" rom:"04 ptr" means:"memory timing map"`
	Timing      uint32 `json:"timing" rom:"08 ptr" means:"memory timings"`
	Volt        uint32 `json:"volt" rom:"0c ptr" means:"voltages"`
	Therm       uint32 `json:"therm" rom:"10 ptr" means:"thermal thresholds"`
	Unk14       uint32 `json:"unk14" rom:"14 ptr"`
	Unk18       uint32 `json:"unk18" rom:"18 ptr"`
	Unk1c       uint32 `json:"unk1c" rom:"1c ptr" means:"a script"`
	VoltMap     uint32 `json:"volt_map" rom:"20 ptr" means:"voltage map"`
	Unk24       uint32 `json:"unk24" rom:"24 ptr"`
	PowerSense  uint32 `json:"power_sense" rom:"28 ptr" means:"current sensors"`
	PowerBudget uint32 `json:"power_budget" rom:"2c ptr" means:"power limits"`
	Boost       uint32 `json:"boost" rom:"30 ptr" means:"clock ranges"`
	CStep       uint32 `json:"clock_steps" rom:"34 ptr" means:"clock steps"`
	BaseClock   uint32 `json:"base_clock" rom:"38 ptr" means:"virtual performance states"`
	Unk3c       uint32 `json:"unk3c" rom:"3c ptr"`
	Unk40       uint32 `json:"unk40" rom:"40 ptr"`
	Unk44       uint32 `json:"unk44" rom:"44 ptr"`
	Unk48       uint32 `json:"unk48" rom:"48 ptr"`
	Unk4c       uint32 `json:"unk4c" rom:"4c ptr"`
	Unk50       uint32 `json:"unk50" rom:"50 ptr"`
	Unk54       uint32 `json:"unk54" rom:"54 ptr"`
	Fan         uint32 `json:"fan" rom:"58 ptr" means:"fan"`
}

var perfLayout = layoutOf[Perf]("BIT 'P'", 0x5c)

// Panels is the 'D' token, version 1.
type Panels struct {
	Unk00      uint16 `json:"unk00" rom:"00"`
	PanelTable uint16 `json:"panel_table" rom:"02 ptr" means:"flat panel table"`
}

var panelsLayout = layoutOf[Panels]("BIT 'D'", 4)

// LVDS is the 'L' token, version 1.
type LVDS struct {
	ManufacturerTable uint16 `json:"manufacturer_table" rom:"00 ptr" means:"LVDS manufacturer table"`
}

var lvdsLayout = layoutOf[LVDS]("BIT 'L'", 2)

// TMDS is the 'T' token, version 1.
type TMDS struct {
	Table uint16 `json:"table" rom:"00 ptr" means:"TMDS table"`
}

var tmdsLayout = layoutOf[TMDS]("BIT 'T'", 2)

// Analog is the 'A' token, version 1, with the analog load table, version 1.0.
type Analog struct {
	Loads     []uint32 `json:"loads"` // two
	LoadTable uint16   `json:"-" rom:"00 ptr" means:"analog load table"`
	Unk02     uint8    `json:"unk02" rom:"02"`
}

var analogLayout = layoutOf[Analog]("BIT 'A'", 3)
