// Package wire is the vfio-user protocol on the wire: command numbers, flags, and the fixed
// structures with their encoding. It holds no behaviour.
//
// The source is the vfio-user protocol specification, version 0.9.2 (QEMU,
// docs/interop/vfio-user). Where libvfio-user differs, the comment says so.
// All numbers are little-endian and naturally aligned.
package wire

import "strconv"

// Command is the number of a message's command.
type Command uint16

// The commands. Client to server unless noted.
const (
	Version             Command = 1
	DMAMap              Command = 2
	DMAUnmap            Command = 3
	DeviceGetInfo       Command = 4
	DeviceGetRegionInfo Command = 5
	DeviceGetRegionIO   Command = 6 // GET_REGION_IO_FDS
	DeviceGetIRQInfo    Command = 7
	DeviceSetIRQs       Command = 8
	RegionRead          Command = 9
	RegionWrite         Command = 10
	DMARead             Command = 11 // server to client
	DMAWrite            Command = 12 // server to client
	DeviceReset         Command = 13
	DirtyPages          Command = 14 // dropped from the specification
	RegionWriteMulti    Command = 15
	DeviceFeature       Command = 16
	MigDataRead         Command = 17
	MigDataWrite        Command = 18

	// NumCommands is one more than the highest command number.
	NumCommands = 19
)

var commandNames = [NumCommands]string{
	Version:             "VERSION",
	DMAMap:              "DMA_MAP",
	DMAUnmap:            "DMA_UNMAP",
	DeviceGetInfo:       "DEVICE_GET_INFO",
	DeviceGetRegionInfo: "DEVICE_GET_REGION_INFO",
	DeviceGetRegionIO:   "DEVICE_GET_REGION_IO_FDS",
	DeviceGetIRQInfo:    "DEVICE_GET_IRQ_INFO",
	DeviceSetIRQs:       "DEVICE_SET_IRQS",
	RegionRead:          "REGION_READ",
	RegionWrite:         "REGION_WRITE",
	DMARead:             "DMA_READ",
	DMAWrite:            "DMA_WRITE",
	DeviceReset:         "DEVICE_RESET",
	DirtyPages:          "DIRTY_PAGES",
	RegionWriteMulti:    "REGION_WRITE_MULTI",
	DeviceFeature:       "DEVICE_FEATURE",
	MigDataRead:         "MIG_DATA_READ",
	MigDataWrite:        "MIG_DATA_WRITE",
}

func (c Command) String() string {
	if int(c) < len(commandNames) && commandNames[c] != "" {
		return commandNames[c]
	}
	return "command " + strconv.Itoa(int(c))
}

// Header flags.
const (
	TypeMask    uint32 = 0xf
	TypeCommand uint32 = 0
	TypeReply   uint32 = 1
	NoReply     uint32 = 0x10
	Error       uint32 = 0x20
)

// Sizes of the fixed structures, in bytes.
const (
	HeaderSize        = 16
	VersionSize       = 4
	DMAMapSize        = 32
	DMAUnmapSize      = 24
	DeviceInfoSize    = 16
	RegionInfoSize    = 32
	RegionIOSize      = 16
	IRQInfoSize       = 16
	IRQSetSize        = 20
	RegionAccessSize  = 16
	DMAAccessSize     = 16
	WriteMultiSize    = 8
	WriteMultiEntry   = 24
	WriteMultiMaxData = 8
	FeatureSize       = 8
	MigDataSize       = 8
	SparseHeaderSize  = 16 // capability header, nr_areas, reserved
	SparseAreaSize    = 16
)

// DefaultMaxDataXfer is max_data_xfer_size when a side does not state it, in bytes.
const DefaultMaxDataXfer = 1 << 20

// DefaultMaxMsgFDs is max_msg_fds when a side does not state it.
const DefaultMaxMsgFDs = 1

// Header starts each message.
type Header struct {
	ID      uint16
	Command Command
	Size    uint32 // of the message, header included
	Flags   uint32
	Errno   uint32 // with Error set
}
