package firmware

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
	Groups       uint8          `json:"groups"`        // number of RAM configurations that scripts give values for
	StrapMap     uint16         `json:"strap_map"`     // pointer: RAM strap to configuration, 0 for one to one
	Training     uint16         `json:"training"`      // pointer: M0205, link training
	Patterns     uint16         `json:"patterns"`      // pointer: M0209, training patterns
	Unk0d        uint16         `json:"unk0d"`         // pointer
	Match        uint8          `json:"match"`         // how M0203 is searched; 0, by RAM strap, is the only known way
	TypesPointer uint16         `json:"types_pointer"` // M0203 field 05
	Types        []MemoryConfig `json:"types"`         // M0203, at most 255 entries; empty means no table
}

// MemoryConfig is an entry of M0203: the meaning of a value of the RAM strap
// (NV_PEXTDEV_BOOT_0 bits 5:2).
type MemoryConfig struct {
	Type  uint8 `json:"type"` // MemoryDDR3 ...
	Strap uint8 `json:"strap"`
	Group uint8 `json:"group"`
}

type memoryPointers struct {
	Groups   uint8
	StrapMap uint16
	Types    uint16
	Training uint16
	Patterns uint16
	Unk0d    uint16
}

var memoryLayout = layout[memoryPointers]{"BIT 'M'", 0x0f, []row{
	f(0x00, 1, "Groups", "RAM configurations that scripts give values for").as(decimal),
	f(0x01, 2, "StrapMap", "RAM strap to configuration").ptr(),
	f(0x03, 2, "Types", "M0203, memory types").ptr(),
	f(0x05, 2, "Training", "M0205, link training").ptr(),
	f(0x09, 2, "Patterns", "M0209, training patterns").ptr(),
	f(0x0d, 2, "Unk0d", "").ptr(),
}}

const m0203Version = 0x10

type m0203Header struct {
	Version    uint8
	HeaderSize uint8
	EntrySize  uint8
	Entries    uint8
	Match      uint8
	Pointer    uint16
}

var m0203Layout = layout[m0203Header]{"M0203", 7, append(append([]row{}, tableHeaderRows...),
	f(0x04, 1, "Match", "how an entry is chosen").as(oneOf(map[uint64]string{0: "by RAM strap"})),
	f(0x05, 2, "Pointer", "").ptr(),
)}

var memoryConfigLayout = layout[MemoryConfig]{"memory type", 2, []row{
	bits(0x00, 1, 3, 0, "Type", "kind of memory").as(memoryTypeName),
	bits(0x00, 1, 7, 4, "Strap", "RAM strap").as(decimal),
	bits(0x01, 1, 3, 0, "Group", "configuration").as(decimal),
}}
