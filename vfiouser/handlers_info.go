package vfiouser

import (
	"os"
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func (c *conn) deviceInfo(rq *request) syscall.Errno {
	if wire.Parse[wire.DeviceInfo](rq.payload).Argsz < wire.DeviceInfoSize {
		return syscall.EINVAL
	}
	wire.Append(c.body(wire.DeviceInfoSize)[:0], wire.DeviceInfo{
		Argsz:      wire.DeviceInfoSize,
		Flags:      wire.DeviceFlagPCI | wire.DeviceFlagReset,
		NumRegions: NumRegions,
		NumIRQs:    NumIRQs,
	})
	return 0
}

// regionInfo serves DEVICE_GET_REGION_INFO. A mappable region is described by a sparse mmap
// capability, also if it may be mapped whole. When the client's argsz has no room for that,
// the reply has the needed size and no descriptor; the client asks again.
func (c *conn) regionInfo(rq *request) syscall.Errno {
	ask := wire.Parse[wire.RegionInfo](rq.payload)
	if ask.Argsz < wire.RegionInfoSize || ask.Index >= NumRegions {
		return syscall.EINVAL
	}
	r := &c.regions[ask.Index]
	info := wire.RegionInfo{Argsz: wire.RegionInfoSize, Index: ask.Index}
	if r.Size == 0 {
		wire.Append(c.body(wire.RegionInfoSize)[:0], info)
		return 0
	}
	info.Size = r.Size
	info.Flags = uint32(r.Flags)
	if r.Flags&RegionMmap == 0 || c.client.maxMsgFDs == 0 {
		info.Flags &^= wire.RegionFlagMmap
		wire.Append(c.body(wire.RegionInfoSize)[:0], info)
		return 0
	}
	areas := r.Areas
	if len(areas) == 0 {
		areas = []SparseArea{{Offset: 0, Size: r.Size}}
	}
	info.Offset = r.MapOffset
	info.Argsz = uint32(wire.RegionInfoSize + wire.SparseSize(len(areas)))
	if ask.Argsz < info.Argsz {
		wire.Append(c.body(int(ask.Argsz))[:0], info)
		return 0
	}
	info.Flags |= wire.RegionFlagCaps
	info.CapOffset = wire.RegionInfoSize
	b := wire.Append(c.body(int(info.Argsz))[:0], info)
	wire.AppendSparse(b, areas)
	var err error
	c.outFD, err = rawFD(r.File) // goes with the reply
	return errnoOf(err)
}

func (c *conn) irqInfo(rq *request) syscall.Errno {
	ask := wire.Parse[wire.IRQInfo](rq.payload)
	if ask.Argsz < wire.IRQInfoSize || ask.Index >= NumIRQs {
		return syscall.EINVAL
	}
	q := c.irqInfos[ask.Index]
	wire.Append(c.body(wire.IRQInfoSize)[:0], wire.IRQInfo{
		Argsz: wire.IRQInfoSize,
		Flags: uint32(q.Flags),
		Index: ask.Index,
		Count: uint32(q.Count),
	})
	return 0
}

// rawFD is f's descriptor. Unlike os.File.Fd it leaves the file's mode alone.
func rawFD(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(p uintptr) { fd = int(p) })
	return fd, err
}

// regionIOFDs serves GET_REGION_IO_FDS: no part of a region has a descriptor.
func (c *conn) regionIOFDs(rq *request) syscall.Errno {
	ask := wire.Parse[wire.RegionIO](rq.payload)
	if ask.Argsz < wire.RegionIOSize || ask.Argsz > c.srv.opts.MaxDataXfer ||
		ask.Flags != 0 || ask.Count != 0 ||
		ask.Index >= NumRegions || c.regions[ask.Index].Size == 0 {
		return syscall.EINVAL
	}
	wire.Append(c.body(wire.RegionIOSize)[:0], wire.RegionIO{Argsz: wire.RegionIOSize, Index: ask.Index})
	return 0
}
