package wire

import "encoding/binary"

var le = binary.LittleEndian

// DMA_MAP flags.
const (
	DMARdAllowed uint32 = 1
	DMAWrAllowed uint32 = 2
	// DMAUseMmap is libvfio-user's (June 2026), not the specification's: it states what a
	// descriptor without a flag means anyway.
	DMAUseMmap uint32 = 4
)

// DMAMapRequest is the payload of DMA_MAP.
type DMAMapRequest struct {
	Argsz  uint32
	Flags  uint32
	Offset uint64 // in the descriptor's file
	Addr   uint64 // bus address (iova)
	Size   uint64
}

// ParseDMAMap decodes the first DMAMapSize bytes of b.
func ParseDMAMap(b []byte) DMAMapRequest {
	_ = b[DMAMapSize-1]
	return DMAMapRequest{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:]), le.Uint64(b[24:])}
}

// Append appends r to b.
func (r DMAMapRequest) Append(b []byte) []byte {
	b = le.AppendUint32(b, r.Argsz)
	b = le.AppendUint32(b, r.Flags)
	b = le.AppendUint64(b, r.Offset)
	b = le.AppendUint64(b, r.Addr)
	return le.AppendUint64(b, r.Size)
}

// DMA_UNMAP flags.
const (
	UnmapGetDirty uint32 = 1 // dropped from the specification, alive in libvfio-user
	UnmapAll      uint32 = 2
)

// DMAUnmapRequest is the payload of DMA_UNMAP and of its reply.
type DMAUnmapRequest struct {
	Argsz uint32
	Flags uint32
	Addr  uint64
	Size  uint64
}

// ParseDMAUnmap decodes the first DMAUnmapSize bytes of b.
func ParseDMAUnmap(b []byte) DMAUnmapRequest {
	_ = b[DMAUnmapSize-1]
	return DMAUnmapRequest{le.Uint32(b), le.Uint32(b[4:]), le.Uint64(b[8:]), le.Uint64(b[16:])}
}

// Append appends r to b.
func (r DMAUnmapRequest) Append(b []byte) []byte {
	b = le.AppendUint32(b, r.Argsz)
	b = le.AppendUint32(b, r.Flags)
	b = le.AppendUint64(b, r.Addr)
	return le.AppendUint64(b, r.Size)
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

// ParseDeviceInfo decodes the first DeviceInfoSize bytes of b.
func ParseDeviceInfo(b []byte) DeviceInfo {
	_ = b[DeviceInfoSize-1]
	return DeviceInfo{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
}

// Append appends i to b.
func (i DeviceInfo) Append(b []byte) []byte {
	b = le.AppendUint32(b, i.Argsz)
	b = le.AppendUint32(b, i.Flags)
	b = le.AppendUint32(b, i.NumRegions)
	return le.AppendUint32(b, i.NumIRQs)
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

// ParseRegionInfo decodes the first RegionInfoSize bytes of b.
func ParseRegionInfo(b []byte) RegionInfo {
	_ = b[RegionInfoSize-1]
	return RegionInfo{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint64(b[16:]), le.Uint64(b[24:])}
}

// Append appends i to b.
func (i RegionInfo) Append(b []byte) []byte {
	b = le.AppendUint32(b, i.Argsz)
	b = le.AppendUint32(b, i.Flags)
	b = le.AppendUint32(b, i.Index)
	b = le.AppendUint32(b, i.CapOffset)
	b = le.AppendUint64(b, i.Size)
	return le.AppendUint64(b, i.Offset)
}

// Capability ids of DEVICE_GET_REGION_INFO.
const (
	CapSparseMmap   uint16 = 1
	CapRegionType   uint16 = 2
	CapMSIXMappable uint16 = 3
)

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

// RegionIO is the fixed part of GET_REGION_IO_FDS both ways.
type RegionIO struct {
	Argsz uint32
	Flags uint32
	Index uint32
	Count uint32
}

// ParseRegionIO decodes the first RegionIOSize bytes of b.
func ParseRegionIO(b []byte) RegionIO {
	_ = b[RegionIOSize-1]
	return RegionIO{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
}

// Append appends r to b.
func (r RegionIO) Append(b []byte) []byte {
	b = le.AppendUint32(b, r.Argsz)
	b = le.AppendUint32(b, r.Flags)
	b = le.AppendUint32(b, r.Index)
	return le.AppendUint32(b, r.Count)
}

// Types of a sub-region in GET_REGION_IO_FDS.
const (
	IOEventFD       uint32 = 0
	IORegionFD      uint32 = 1
	IOEventFDShadow uint32 = 2 // libvfio-user's
)

// Sizes of one sub-region: the specification's, and libvfio-user's with the shadow fields.
const (
	SubRegionSize       = 40
	SubRegionShadowSize = 48
)

// SubRegion is one entry of GET_REGION_IO_FDS.
type SubRegion struct {
	Offset       uint64
	Size         uint64
	FDIndex      uint32
	Type         uint32
	Flags        uint32 // KVM_IOEVENTFD_FLAG_*, or 0
	DataMatch    uint64 // or user_data of an ioregionfd
	ShadowFD     uint32 // index of the shadow memory's descriptor
	ShadowOffset uint64
}

// Append appends s to b in the specification's 40 bytes.
func (s SubRegion) Append(b []byte) []byte {
	b = s.appendCommon(b)
	b = le.AppendUint32(b, 0)
	return le.AppendUint64(b, s.DataMatch)
}

// AppendShadow appends s to b in libvfio-user's 48 bytes.
func (s SubRegion) AppendShadow(b []byte) []byte {
	b = s.appendCommon(b)
	b = le.AppendUint32(b, s.ShadowFD)
	b = le.AppendUint64(b, s.ShadowOffset)
	return le.AppendUint64(b, s.DataMatch)
}

func (s SubRegion) appendCommon(b []byte) []byte {
	b = le.AppendUint64(b, s.Offset)
	b = le.AppendUint64(b, s.Size)
	b = le.AppendUint32(b, s.FDIndex)
	b = le.AppendUint32(b, s.Type)
	return le.AppendUint32(b, s.Flags)
}

// ParseSubRegion decodes one entry of 40 or 48 bytes.
func ParseSubRegion(b []byte) SubRegion {
	s := SubRegion{
		Offset: le.Uint64(b), Size: le.Uint64(b[8:]),
		FDIndex: le.Uint32(b[16:]), Type: le.Uint32(b[20:]), Flags: le.Uint32(b[24:]),
	}
	if len(b) >= SubRegionShadowSize {
		s.ShadowFD, s.ShadowOffset, s.DataMatch = le.Uint32(b[28:]), le.Uint64(b[32:]), le.Uint64(b[40:])
		return s
	}
	s.DataMatch = le.Uint64(b[32:])
	return s
}

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

// ParseIRQInfo decodes the first IRQInfoSize bytes of b.
func ParseIRQInfo(b []byte) IRQInfo {
	_ = b[IRQInfoSize-1]
	return IRQInfo{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:])}
}

// Append appends i to b.
func (i IRQInfo) Append(b []byte) []byte {
	b = le.AppendUint32(b, i.Argsz)
	b = le.AppendUint32(b, i.Flags)
	b = le.AppendUint32(b, i.Index)
	return le.AppendUint32(b, i.Count)
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

// ParseIRQSet decodes the first IRQSetSize bytes of b.
func ParseIRQSet(b []byte) IRQSet {
	_ = b[IRQSetSize-1]
	return IRQSet{le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:]), le.Uint32(b[12:]), le.Uint32(b[16:])}
}

// Append appends s to b.
func (s IRQSet) Append(b []byte) []byte {
	b = le.AppendUint32(b, s.Argsz)
	b = le.AppendUint32(b, s.Flags)
	b = le.AppendUint32(b, s.Index)
	b = le.AppendUint32(b, s.Start)
	return le.AppendUint32(b, s.Count)
}

// RegionAccess is the fixed part of REGION_READ and REGION_WRITE both ways.
type RegionAccess struct {
	Offset uint64
	Region uint32
	Count  uint32
}

// ParseRegionAccess decodes the first RegionAccessSize bytes of b.
func ParseRegionAccess(b []byte) RegionAccess {
	_ = b[RegionAccessSize-1]
	return RegionAccess{le.Uint64(b), le.Uint32(b[8:]), le.Uint32(b[12:])}
}

// Put encodes a into the first RegionAccessSize bytes of b.
func (a RegionAccess) Put(b []byte) {
	_ = b[RegionAccessSize-1]
	le.PutUint64(b, a.Offset)
	le.PutUint32(b[8:], a.Region)
	le.PutUint32(b[12:], a.Count)
}

// Append appends a to b.
func (a RegionAccess) Append(b []byte) []byte {
	b = le.AppendUint64(b, a.Offset)
	b = le.AppendUint32(b, a.Region)
	return le.AppendUint32(b, a.Count)
}

// DMAAccess is the fixed part of DMA_READ and DMA_WRITE, and of their replies.
type DMAAccess struct {
	Addr  uint64
	Count uint64
}

// ParseDMAAccess decodes the first DMAAccessSize bytes of b.
func ParseDMAAccess(b []byte) DMAAccess {
	_ = b[DMAAccessSize-1]
	return DMAAccess{le.Uint64(b), le.Uint64(b[8:])}
}

// Append appends a to b.
func (a DMAAccess) Append(b []byte) []byte {
	b = le.AppendUint64(b, a.Addr)
	return le.AppendUint64(b, a.Count)
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

// ParseFeature decodes the first FeatureSize bytes of b.
func ParseFeature(b []byte) Feature {
	_ = b[FeatureSize-1]
	return Feature{le.Uint32(b), le.Uint32(b[4:])}
}

// Append appends f to b.
func (f Feature) Append(b []byte) []byte {
	b = le.AppendUint32(b, f.Argsz)
	return le.AppendUint32(b, f.Flags)
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

// ParseMigData decodes the first MigDataSize bytes of b.
func ParseMigData(b []byte) MigData {
	_ = b[MigDataSize-1]
	return MigData{le.Uint32(b), le.Uint32(b[4:])}
}

// Append appends d to b.
func (d MigData) Append(b []byte) []byte {
	b = le.AppendUint32(b, d.Argsz)
	return le.AppendUint32(b, d.Size)
}
