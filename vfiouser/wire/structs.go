package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
)

var le = binary.LittleEndian

// DMA_MAP flags.
const (
	DMARdAllowed uint32 = 1
	DMAWrAllowed uint32 = 2
	// How the descriptor is used is libvfio-user's (June 2026), not yet the specification's.
	// DMAUseMmap is what a descriptor without a flag means anyway.
	DMAUseMmap   uint32 = 4
	DMAUseFileIO uint32 = 8 // read and write the file
)

// DMAMapRequest is the payload of DMA_MAP.
type DMAMapRequest struct {
	Argsz  uint32
	Flags  uint32
	Offset uint64 // in the descriptor's file
	Addr   uint64 // bus address (iova)
	Size   uint64
}

// DMA_UNMAP flags.
const (
	UnmapGetDirty uint32 = 1 // dropped from the specification
	UnmapAll      uint32 = 2
)

// DMAUnmapRequest is the payload of DMA_UNMAP and of its reply.
type DMAUnmapRequest struct {
	Argsz uint32
	Flags uint32
	Addr  uint64
	Size  uint64
}

// DEVICE_GET_INFO flags.
const (
	DeviceFlagReset uint32 = 1
	DeviceFlagPCI   uint32 = 2
)

// DeviceInfo is the payload of DEVICE_GET_INFO both ways.
type DeviceInfo struct {
	Argsz      uint32
	Flags      uint32
	NumRegions uint32
	NumIRQs    uint32
}

// DEVICE_GET_REGION_INFO flags.
const (
	RegionFlagRead  uint32 = 1
	RegionFlagWrite uint32 = 2
	RegionFlagMmap  uint32 = 4
	RegionFlagCaps  uint32 = 8
)

// RegionInfo is the fixed part of DEVICE_GET_REGION_INFO both ways.
type RegionInfo struct {
	Argsz     uint32
	Flags     uint32
	Index     uint32
	CapOffset uint32
	Size      uint64
	Offset    uint64 // in the descriptor's file
}

// CapSparseMmap is the id of the sparse mmap capability of DEVICE_GET_REGION_INFO.
const CapSparseMmap uint16 = 1

// Area is one mappable range of a region, relative to the region.
type Area struct {
	Offset uint64 `json:"offset"`
	Size   uint64 `json:"size"`
}

// SparseSize is the size of the sparse mmap capability with n areas, in bytes.
func SparseSize(n int) int { return SparseHeaderSize + n*SparseAreaSize }

// AppendSparse appends the sparse mmap capability to b, as the last of its chain.
func AppendSparse(b []byte, areas []Area) []byte {
	b = le.AppendUint16(b, CapSparseMmap)
	b = le.AppendUint16(b, 1) // version
	b = le.AppendUint32(b, 0) // next
	b = le.AppendUint32(b, uint32(len(areas)))
	b = le.AppendUint32(b, 0)
	for _, a := range areas {
		b = le.AppendUint64(b, a.Offset)
		b = le.AppendUint64(b, a.Size)
	}
	return b
}

// ParseSparse walks the capabilities of a region's description p, from the offset at on. It
// returns the sparse areas and the number of capabilities.
func ParseSparse(p []byte, at uint32) (areas []Area, n int, err error) {
	for ; at != 0; n++ {
		switch {
		case n == 16:
			return nil, n, errors.New("a capability chain without end")
		case at < RegionInfoSize || uint64(at)+8 > uint64(len(p)):
			return nil, n, fmt.Errorf("capability at %d of %d bytes", at, len(p))
		}
		b := p[at:]
		if le.Uint16(b) == CapSparseMmap {
			if len(b) < SparseHeaderSize {
				return nil, n, fmt.Errorf("sparse capability of %d bytes", len(b))
			}
			count := le.Uint32(b[8:])
			if SparseHeaderSize+uint64(count)*SparseAreaSize > uint64(len(b)) {
				return nil, n, fmt.Errorf("%d areas in %d bytes", count, len(b))
			}
			for i := range count {
				q := b[SparseHeaderSize+i*SparseAreaSize:]
				areas = append(areas, Area{le.Uint64(q), le.Uint64(q[8:])})
			}
		}
		at = le.Uint32(b[4:])
	}
	return areas, n, nil
}

// RegionIO is the fixed part of GET_REGION_IO_FDS both ways.
type RegionIO struct {
	Argsz uint32
	Flags uint32
	Index uint32
	Count uint32
}

// Sizes of one entry of GET_REGION_IO_FDS: the specification's, and libvfio-user's with the shadow fields.
const (
	SubRegionSize       = 40
	SubRegionShadowSize = 48
)

// DEVICE_GET_IRQ_INFO flags.
const (
	IRQFlagEventFD    uint32 = 1
	IRQFlagMaskable   uint32 = 2
	IRQFlagAutomasked uint32 = 4
	IRQFlagNoResize   uint32 = 8
)

// IRQInfo is the payload of DEVICE_GET_IRQ_INFO both ways.
type IRQInfo struct {
	Argsz uint32
	Flags uint32
	Index uint32
	Count uint32
}

// SET_IRQS flags: one data kind and one action.
const (
	IRQDataNone      uint32 = 1
	IRQDataBool      uint32 = 2
	IRQDataEventFD   uint32 = 4
	IRQActionMask    uint32 = 8
	IRQActionUnmask  uint32 = 0x10
	IRQActionTrigger uint32 = 0x20

	IRQDataKinds uint32 = IRQDataNone | IRQDataBool | IRQDataEventFD
	IRQActions   uint32 = IRQActionMask | IRQActionUnmask | IRQActionTrigger
)

// IRQSet is the fixed part of SET_IRQS.
type IRQSet struct {
	Argsz uint32
	Flags uint32
	Index uint32
	Start uint32
	Count uint32
}

// RegionAccess is the fixed part of REGION_READ and REGION_WRITE both ways.
type RegionAccess struct {
	Offset uint64
	Region uint32
	Count  uint32
}

// DMAAccess is the fixed part of DMA_READ and DMA_WRITE, and of their replies.
type DMAAccess struct {
	Addr  uint64
	Count uint64
}

// DEVICE_FEATURE flags: the feature's number and the operation.
const (
	FeatureMask  uint32 = 0xffff
	FeatureGet   uint32 = 0x10000
	FeatureSet   uint32 = 0x20000
	FeatureProbe uint32 = 0x40000
)

// Features of DEVICE_FEATURE.
const (
	FeatureMigration        uint32 = 1
	FeatureMigDeviceState   uint32 = 2
	FeatureDMALoggingStart  uint32 = 6
	FeatureDMALoggingStop   uint32 = 7
	FeatureDMALoggingReport uint32 = 8
)

// Feature is the fixed part of DEVICE_FEATURE both ways.
type Feature struct {
	Argsz uint32
	Flags uint32
}

// Device states of FeatureMigDeviceState.
const (
	MigError      uint32 = 0
	MigStop       uint32 = 1
	MigRunning    uint32 = 2
	MigStopCopy   uint32 = 3
	MigResuming   uint32 = 4
	MigRunningP2P uint32 = 5
	MigPreCopy    uint32 = 6
	MigPreCopyP2P uint32 = 7
	NumMigStates         = 8
)

// Flags of FeatureMigration.
const (
	MigFlagStopCopy uint64 = 1
	MigFlagP2P      uint64 = 2
	MigFlagPreCopy  uint64 = 4
)

// MigData is the fixed part of MIG_DATA_READ and MIG_DATA_WRITE.
type MigData struct {
	Argsz uint32
	Size  uint32
}
