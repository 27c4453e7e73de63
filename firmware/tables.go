package firmware

// tableHeader is the header of tables that begin with their own geometry in this order.
type tableHeader struct {
	Version    uint8 `rom:"00 version8" means:"table version"`
	HeaderSize uint8 `rom:"01" means:"bytes in this header"`
	EntrySize  uint8 `rom:"02" means:"bytes in one entry"`
	Entries    uint8 `rom:"03 decimal" means:"number of entries"`
}

const analogVersion = 0x10

var analogTableLayout = layoutOf[tableHeader]("analog load table", 4)

type analogLoad struct {
	Load uint32 `rom:"00" means:"load detection value"`
}

var analogLoadLayout = layoutOf[analogLoad]("analog load", 4)

// Memory types in the M0203 table.
const (
	MemoryDDR2  = 0x0
	MemoryDDR3  = 0x1
	MemoryGDDR3 = 0x2
	MemoryGDDR5 = 0x3
	MemorySkip  = 0xf // no memory is fitted with this strap
)

var memoryTypeName = oneOf(map[uint64]string{
	MemoryDDR2: "DDR2", MemoryDDR3: "DDR3", MemoryGDDR3: "GDDR3", MemoryGDDR5: "GDDR5", MemorySkip: "skip",
})

// Memory is the 'M' token, version 2, with the M0203 table of memory types.
type Memory struct {
	Groups       uint8          `json:"groups" rom:"00 decimal" means:"RAM configurations that scripts give values for"`
	StrapMap     uint16         `json:"strap_map" rom:"01 ptr" means:"RAM strap to configuration"` // 0 for one to one
	TypeTable    uint16         `json:"-" rom:"03 ptr" means:"M0203, memory types"`
	Training     uint16         `json:"training" rom:"05 ptr" means:"M0205, link training"`
	Patterns     uint16         `json:"patterns" rom:"09 ptr" means:"M0209, training patterns"`
	Unk0d        uint16         `json:"unk0d" rom:"0d ptr"`
	Match        uint8          `json:"match"`         // how M0203 is searched; 0, by RAM strap, is the only known way
	TypesPointer uint16         `json:"types_pointer"` // M0203 field 05
	Types        []MemoryConfig `json:"types"`         // M0203, at most 255 entries; empty means no table
}

// MemoryConfig is an entry of M0203: the meaning of a value of the RAM strap
// (NV_PEXTDEV_BOOT_0 bits 5:2).
type MemoryConfig struct {
	Type  uint8 `json:"type" rom:"00 3:0 memory" means:"kind of memory"` // MemoryDDR3 ...
	Strap uint8 `json:"strap" rom:"00 7:4 decimal" means:"RAM strap"`
	Group uint8 `json:"group" rom:"01 3:0 decimal" means:"configuration"`
}

var memoryLayout = layoutOf[Memory]("BIT 'M'", 0x0f)

const m0203Version = 0x10

type m0203Header struct {
	tableHeader
	Match   uint8  `rom:"04 match" means:"how an entry is chosen"`
	Pointer uint16 `rom:"05 ptr"`
}

var m0203Layout = layoutOf[m0203Header]("M0203", 7)

var memoryConfigLayout = layoutOf[MemoryConfig]("memory type", 2)

// PLL kinds in the PLL table.
const (
	PLLCore      = 0x01
	PLLShader    = 0x02
	PLLMemory    = 0x04
	PLLVideo     = 0x05
	PLLMemoryRef = 0x0c
)

var pllTypeName = oneOf(map[uint64]string{
	PLLCore: "core", PLLShader: "shader", PLLMemory: "memory", PLLVideo: "video decoder", PLLMemoryRef: "memory reference",
	0x80: "display head 0", 0x81: "display head 1", 0x82: "display head 2", 0x83: "display head 3",
})

// PLL is one entry of the PLL table, version 4.0, with its limits.
type PLL struct {
	Type      uint8     `json:"type" rom:"00 pll" means:"which PLL"` // PLLCore ...
	LimitsAt  uint16    `json:"-" rom:"01 ptr" means:"its limits"`
	Register  uint32    `json:"register" rom:"03" means:"control register in BAR0"`
	Unk07     uint16    `json:"unk07" rom:"07"`
	Reference uint16    `json:"reference_mhz" rom:"09 mhz" means:"reference clock; 0 is the crystal"`
	Limits    PLLLimits `json:"limits"`
}

const pllVersion = 0x40

var pllTableLayout = layoutOf[tableHeader]("PLL table", 4)

var pllLayout = layoutOf[PLL]("PLL", 11)

// PLLLimits bound a PLL: its oscillator and input in MHz, and the dividers of
// out = in * N / M / P.
type PLLLimits struct {
	MinVCO   uint16 `json:"min_vco_mhz" rom:"00 mhz" means:"oscillator, lowest"`
	MaxVCO   uint16 `json:"max_vco_mhz" rom:"02 mhz" means:"oscillator, highest"`
	MinInput uint16 `json:"min_input_mhz" rom:"04 mhz" means:"input, lowest"`
	MaxInput uint16 `json:"max_input_mhz" rom:"06 mhz" means:"input, highest"`
	MinM     uint8  `json:"min_m" rom:"08 decimal" means:"input divider"`
	MaxM     uint8  `json:"max_m" rom:"09 decimal"`
	MinN     uint8  `json:"min_n" rom:"0a decimal" means:"multiplier"`
	MaxN     uint8  `json:"max_n" rom:"0b decimal"`
	MinP     uint8  `json:"min_p" rom:"0c decimal" means:"output divider"`
	MaxP     uint8  `json:"max_p" rom:"0d decimal"`
}

var pllLimitsLayout = layoutOf[PLLLimits]("PLL limits", 14)
