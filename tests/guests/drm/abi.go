package drm

import "unsafe"

// Structures of the kernel's user interface, field for field. The number of each request
// holds its structure's size, so the kernel refuses a wrong one.
// Source: Linux include/uapi/drm/drm.h and include/uapi/drm/nouveau_drm.h.

type drmVersion struct {
	Major, Minor, Patch int32
	_                   int32
	NameLen             uint64
	Name                uint64
	DateLen             uint64
	Date                uint64
	DescLen             uint64
	Desc                uint64
}

type gemClose struct {
	Handle uint32
	Pad    uint32
}

type getParam struct {
	Param, Value uint64
}

type channelAlloc struct {
	FBCtxDMA       uint32 // ignored on Fermi, but ~0 is refused
	TTCtxDMA       uint32
	Channel        int32
	PushbufDomains uint32
	NotifierHandle uint32
	Subchan        [8]struct{ Handle, Class uint32 }
	NrSubchan      uint32
}

type channelFree struct {
	Channel int32
}

type grobjAlloc struct {
	Channel int32
	Handle  uint32
	Class   int32
}

type gemInfo struct {
	Handle    uint32
	Domain    uint32
	Size      uint64
	Offset    uint64
	MapHandle uint64
	TileMode  uint32
	TileFlags uint32
}

type gemNew struct {
	Info        gemInfo
	ChannelHint uint32
	Align       uint32
}

type pushbufPresumed struct {
	Valid  uint32
	Domain uint32
	Offset uint64
}

type pushbufBO struct {
	UserPriv     uint64
	Handle       uint32
	ReadDomains  uint32
	WriteDomains uint32
	ValidDomains uint32
	Presumed     pushbufPresumed
}

type pushbufPush struct {
	BOIndex uint32
	Pad     uint32
	Offset  uint64
	Length  uint64 // bytes; bit 23 = no prefetch
}

type gemPushbuf struct {
	Channel       uint32
	NrBuffers     uint32
	Buffers       uint64
	NrRelocs      uint32
	NrPush        uint32
	Relocs        uint64
	Push          uint64
	Suffix0       uint32
	Suffix1       uint32
	VRAMAvailable uint64 // in: bit 0 = wait for the fence; out: bytes
	GARTAvailable uint64
}

type gemCPUPrep struct {
	Handle uint32
	Flags  uint32
}

type vmInit struct {
	KernelManagedAddr, KernelManagedSize uint64
}

type vmBindOp struct {
	Op, Flags, Handle, Pad uint32
	Addr, BOOffset, Range  uint64
}

type vmBind struct {
	OpCount, Flags, WaitCount, SigCount uint32
	Wait, Sig, Op                       uint64
}

type syncPoint struct {
	Flags, Handle uint32
	Value         uint64
}

type execPush struct {
	VA         uint64
	Len, Flags uint32
}

type exec struct {
	Channel, PushCount, WaitCount, SigCount uint32
	Wait, Sig, Push                         uint64
}

type syncobjCreate struct {
	Handle, Flags uint32
}

type syncobjTimelineWait struct {
	Handles, Points, TimeoutNS uint64
	Count, Flags, First, Pad   uint32
	DeadlineNS                 uint64
}

type syncobjArray struct {
	Handles, Points uint64
	Count, Flags    uint32
}

// Ioctl request numbers: _IOC(dir, 'd', nr, size).
const (
	iocWrite = 1
	iocRead  = 2

	drmCommandBase = 0x40
)

func ioc(dir, nr, size uintptr) uintptr { return dir<<30 | size<<16 | 'd'<<8 | nr }

var (
	ioctlVersion      = ioc(iocRead|iocWrite, 0x00, unsafe.Sizeof(drmVersion{}))
	ioctlGEMClose     = ioc(iocWrite, 0x09, unsafe.Sizeof(gemClose{}))
	ioctlGetParam     = ioc(iocRead|iocWrite, drmCommandBase+0x00, unsafe.Sizeof(getParam{}))
	ioctlChannelAlloc = ioc(iocRead|iocWrite, drmCommandBase+0x02, unsafe.Sizeof(channelAlloc{}))
	ioctlChannelFree  = ioc(iocWrite, drmCommandBase+0x03, unsafe.Sizeof(channelFree{}))
	ioctlGrobjAlloc   = ioc(iocWrite, drmCommandBase+0x04, unsafe.Sizeof(grobjAlloc{}))
	ioctlVMInit       = ioc(iocRead|iocWrite, drmCommandBase+0x10, unsafe.Sizeof(vmInit{}))
	ioctlVMBind       = ioc(iocRead|iocWrite, drmCommandBase+0x11, unsafe.Sizeof(vmBind{}))
	ioctlExec         = ioc(iocRead|iocWrite, drmCommandBase+0x12, unsafe.Sizeof(exec{}))
	ioctlGEMNew       = ioc(iocRead|iocWrite, drmCommandBase+0x40, unsafe.Sizeof(gemNew{}))
	ioctlGEMPushbuf   = ioc(iocRead|iocWrite, drmCommandBase+0x41, unsafe.Sizeof(gemPushbuf{}))
	ioctlGEMCPUPrep   = ioc(iocWrite, drmCommandBase+0x42, unsafe.Sizeof(gemCPUPrep{}))
	ioctlGEMInfo      = ioc(iocRead|iocWrite, drmCommandBase+0x44, unsafe.Sizeof(gemInfo{}))

	ioctlSyncobjCreate  = ioc(iocRead|iocWrite, 0xbf, unsafe.Sizeof(syncobjCreate{}))
	ioctlSyncobjDestroy = ioc(iocRead|iocWrite, 0xc0, unsafe.Sizeof(syncobjCreate{}))
	ioctlTimelineWait   = ioc(iocRead|iocWrite, 0xca, unsafe.Sizeof(syncobjTimelineWait{}))
	ioctlTimelineSignal = ioc(iocRead|iocWrite, 0xcd, unsafe.Sizeof(syncobjArray{}))
)
