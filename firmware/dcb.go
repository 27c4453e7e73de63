package firmware

const (
	dcbSignature   = 0x4edcbdcb
	dcbOldest      = 0x30 // older device control blocks have another header
	dcbNewest      = 0x41
	dcbHeaderLeast = 0x17 // newer headers have more pointers
)

// DCB is the device control block, version 3.0 to 4.1: the outputs of the
// board and where to find the tables about them. The tables are not decoded.
type DCB struct {
	Offset         int         `json:"offset"`
	Version        uint8       `json:"version"`
	I2C            uint16      `json:"i2c"`
	GPIO           uint16      `json:"gpio"`
	InputDevices   uint16      `json:"input_devices"`
	PersonalCinema uint16      `json:"personal_cinema"`
	SpreadSpectrum uint16      `json:"spread_spectrum"`
	I2CDevices     uint16      `json:"i2c_devices"`
	Connectors     uint16      `json:"connectors"`
	Flags          uint8       `json:"flags"`
	HDTV           uint16      `json:"hdtv"`
	Switched       uint16      `json:"switched"`
	Outputs        []DCBOutput `json:"outputs"` // at most 255
}

// dcbHeader is the DCB in the image, without its outputs.
type dcbHeader struct {
	Version        uint8
	HeaderSize     uint8
	Entries        uint8
	EntrySize      uint8
	I2C            uint16
	Signature      uint32
	GPIO           uint16
	InputDevices   uint16
	PersonalCinema uint16
	SpreadSpectrum uint16
	I2CDevices     uint16
	Connectors     uint16
	Flags          uint8
	HDTV           uint16
	Switched       uint16
}

var dcbLayout = layout[dcbHeader]{"DCB", 0x1b, []row{
	f(0x00, 1, "Version", "table version").as(version8),
	f(0x01, 1, "HeaderSize", "bytes in this header"),
	f(0x02, 1, "Entries", "number of outputs").as(decimal),
	f(0x03, 1, "EntrySize", "bytes in one output entry"),
	f(0x04, 2, "I2C", "I2C bus table").ptr(),
	f(0x06, 4, "Signature", "4edcbdcb"),
	f(0x0a, 2, "GPIO", "GPIO table").ptr(),
	f(0x0c, 2, "InputDevices", "input device table").ptr(),
	f(0x0e, 2, "PersonalCinema", "personal cinema table").ptr(),
	f(0x10, 2, "SpreadSpectrum", "spread spectrum table").ptr(),
	f(0x12, 2, "I2CDevices", "external device table").ptr(),
	f(0x14, 2, "Connectors", "connector table").ptr(),
	f(0x16, 1, "Flags", "board flags"),
	f(0x17, 2, "HDTV", "HDTV translation table").ptr(),
	f(0x19, 2, "Switched", "switched output table").ptr(),
}}

// Output types in a DCB output entry.
const (
	OutputAnalog = 0x0
	OutputTV     = 0x1
	OutputTMDS   = 0x2
	OutputLVDS   = 0x3
	OutputDP     = 0x6
	OutputEnd    = 0xe // ends the list
	OutputUnused = 0xf // to be skipped
)

// DCBOutput is one output path of the board.
type DCBOutput struct {
	Type      uint8  `json:"type"`      // OutputAnalog ...
	I2C       uint8  `json:"i2c"`       // I2C bus of the monitor's EDID, 15 for none
	Heads     uint8  `json:"heads"`     // mask of display heads that can drive it
	Connector uint8  `json:"connector"` // index in the connector table
	Bus       uint8  `json:"bus"`       // outputs of the same bus cannot be used together
	Location  uint8  `json:"location"`  // 0 on the chip, 1 on the board
	Unk22     uint8  `json:"unk22"`
	OR        uint8  `json:"or"` // mask of output resources
	Unk28     uint8  `json:"unk28"`
	Specific  uint32 `json:"specific"` // second dword, depends on Type
}

var outputTypeName = oneOf(map[uint64]string{
	OutputAnalog: "analog", OutputTV: "TV", OutputTMDS: "TMDS", OutputLVDS: "LVDS", OutputDP: "DisplayPort",
	OutputEnd: "end of list", OutputUnused: "unused",
})

var dcbOutputLayout = layout[DCBOutput]{"DCB output", 8, []row{
	bits(0x00, 4, 3, 0, "Type", "kind of output").as(outputTypeName),
	bits(0x00, 4, 7, 4, "I2C", "I2C bus of the EDID").as(decimal),
	bits(0x00, 4, 11, 8, "Heads", "mask of display heads"),
	bits(0x00, 4, 15, 12, "Connector", "connector").as(decimal),
	bits(0x00, 4, 19, 16, "Bus", "outputs of one bus exclude each other").as(decimal),
	bits(0x00, 4, 21, 20, "Location", "where the encoder is").as(oneOf(map[uint64]string{0: "chip", 1: "board"})),
	bits(0x00, 4, 23, 22, "Unk22", ""),
	bits(0x00, 4, 27, 24, "OR", "mask of output resources"),
	bits(0x00, 4, 31, 28, "Unk28", ""),
	f(0x04, 4, "Specific", "depends on the kind"),
}}
