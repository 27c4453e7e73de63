package firmware

const (
	dcbSignature   = 0x4edcbdcb
	dcbOldest      = 0x30 // older device control blocks have another header
	dcbNewest      = 0x41
	dcbHeaderLeast = 0x17 // newer headers have more pointers
)

// DCB is the device control block, version 3.0 to 4.1: the outputs of the board and where to find
// the tables about them. The tables are not decoded.
type DCB struct {
	Offset         int         `json:"offset"`
	Version        uint8       `json:"version" rom:"00 version8" means:"table version"`
	HeaderSize     uint8       `json:"-" rom:"01" means:"bytes in this header"`
	Entries        uint8       `json:"-" rom:"02 decimal" means:"number of outputs"`
	EntrySize      uint8       `json:"-" rom:"03" means:"bytes in one output entry"`
	I2C            uint16      `json:"i2c" rom:"04 ptr" means:"I2C bus table"`
	Signature      uint32      `json:"-" rom:"06" means:"4edcbdcb"`
	GPIO           uint16      `json:"gpio" rom:"0a ptr" means:"GPIO table"`
	InputDevices   uint16      `json:"input_devices" rom:"0c ptr" means:"input device table"`
	PersonalCinema uint16      `json:"personal_cinema" rom:"0e ptr" means:"personal cinema table"`
	SpreadSpectrum uint16      `json:"spread_spectrum" rom:"10 ptr" means:"spread spectrum table"`
	I2CDevices     uint16      `json:"i2c_devices" rom:"12 ptr" means:"external device table"`
	Connectors     uint16      `json:"connectors" rom:"14 ptr" means:"connector table"`
	Flags          uint8       `json:"flags" rom:"16" means:"board flags"`
	HDTV           uint16      `json:"hdtv" rom:"17 ptr" means:"HDTV translation table"`
	Switched       uint16      `json:"switched" rom:"19 ptr" means:"switched output table"`
	Outputs        []DCBOutput `json:"outputs"` // at most 255
}

var dcbLayout = layoutOf[DCB]("DCB", 0x1b)

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
	Type      uint8  `json:"type" rom:"00.4 3:0 output" means:"kind of output"`
	I2C       uint8  `json:"i2c" rom:"00.4 7:4 decimal" means:"I2C bus of the EDID, 15 for none"`
	Heads     uint8  `json:"heads" rom:"00.4 11:8" means:"mask of display heads"`
	Connector uint8  `json:"connector" rom:"00.4 15:12 decimal" means:"connector"`
	Bus       uint8  `json:"bus" rom:"00.4 19:16 decimal" means:"outputs of one bus exclude each other"`
	Location  uint8  `json:"location" rom:"00.4 21:20 location" means:"where the encoder is"`
	Unk22     uint8  `json:"unk22" rom:"00.4 23:22"`
	OR        uint8  `json:"or" rom:"00.4 27:24" means:"mask of output resources"`
	Unk28     uint8  `json:"unk28" rom:"00.4 31:28"`
	Specific  uint32 `json:"specific" rom:"04" means:"depends on the kind"`
}

var outputTypeName = oneOf(map[uint64]string{
	OutputAnalog: "analog", OutputTV: "TV", OutputTMDS: "TMDS", OutputLVDS: "LVDS", OutputDP: "DisplayPort",
	OutputEnd: "end of list", OutputUnused: "unused",
})

var dcbOutputLayout = layoutOf[DCBOutput]("DCB output", 8)
