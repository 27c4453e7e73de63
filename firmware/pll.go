package firmware

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
	Type      uint8     `json:"type"`     // PLLCore ...
	Register  uint32    `json:"register"` // BAR0 offset of its control register
	Unk07     uint16    `json:"unk07"`
	Reference uint16    `json:"reference_mhz"` // reference clock, MHz; 0 is the crystal
	Limits    PLLLimits `json:"limits"`
}

// pllEntry is a PLL in the table.
type pllEntry struct {
	Type      uint8
	Limits    uint16
	Register  uint32
	Unk07     uint16
	Reference uint16
}

const pllVersion = 0x40

var pllTableLayout = layout[tableHeader]{"PLL table", 4, tableHeaderRows}

var pllEntryLayout = layout[pllEntry]{"PLL", 11, []row{
	f(0x00, 1, "Type", "which PLL").as(pllTypeName),
	f(0x01, 2, "Limits", "its limits").ptr(),
	f(0x03, 4, "Register", "control register in BAR0"),
	f(0x07, 2, "Unk07", ""),
	f(0x09, 2, "Reference", "reference clock; 0 is the crystal").as(mhz),
}}

// PLLLimits bound a PLL: its oscillator and input in MHz, and the dividers of
// out = in * N / M / P.
type PLLLimits struct {
	MinVCO   uint16 `json:"min_vco_mhz"`
	MaxVCO   uint16 `json:"max_vco_mhz"`
	MinInput uint16 `json:"min_input_mhz"`
	MaxInput uint16 `json:"max_input_mhz"`
	MinM     uint8  `json:"min_m"`
	MaxM     uint8  `json:"max_m"`
	MinN     uint8  `json:"min_n"`
	MaxN     uint8  `json:"max_n"`
	MinP     uint8  `json:"min_p"`
	MaxP     uint8  `json:"max_p"`
}

var pllLimitsLayout = layout[PLLLimits]{"PLL limits", 14, []row{
	f(0x00, 2, "MinVCO", "oscillator, lowest").as(mhz),
	f(0x02, 2, "MaxVCO", "oscillator, highest").as(mhz),
	f(0x04, 2, "MinInput", "input, lowest").as(mhz),
	f(0x06, 2, "MaxInput", "input, highest").as(mhz),
	f(0x08, 1, "MinM", "input divider").as(decimal),
	f(0x09, 1, "MaxM", "").as(decimal),
	f(0x0a, 1, "MinN", "multiplier").as(decimal),
	f(0x0b, 1, "MaxN", "").as(decimal),
	f(0x0c, 1, "MinP", "output divider").as(decimal),
	f(0x0d, 1, "MaxP", "").as(decimal),
}}
