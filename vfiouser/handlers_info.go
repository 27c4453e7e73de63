package vfiouser

import (
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// deviceInfo serves DEVICE_GET_INFO.
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
	return c.replyFile(r.File)
}

// irqInfo serves DEVICE_GET_IRQ_INFO.
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
