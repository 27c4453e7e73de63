package vfiouser

import (
	"os"
	"slices"
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
	return c.replyFile(r.File)
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

// replyFile sends a duplicate of f with the present reply.
func (c *conn) replyFile(f *os.File) syscall.Errno {
	fd, err := rawFD(f)
	if err != nil {
		return errnoOf(err)
	}
	c.outFDs = append(c.outFDs, fd)
	return 0
}

// rawFD is f's descriptor. Unlike os.File.Fd it leaves the file's mode alone.
func rawFD(f *os.File) (fd int, err error) {
	if f == nil {
		return -1, syscall.EBADF
	}
	raw, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = raw.Control(func(p uintptr) { fd = int(p) })
	return fd, err
}

// regionIOFDs serves GET_REGION_IO_FDS. When the client's argsz has no room for the entries,
// the reply has the needed size and no descriptor.
func (c *conn) regionIOFDs(rq *request) syscall.Errno {
	ask := wire.Parse[wire.RegionIO](rq.payload)
	switch {
	case ask.Argsz < wire.RegionIOSize, ask.Argsz > c.srv.opts.MaxDataXfer,
		ask.Flags != 0, ask.Count != 0,
		ask.Index >= NumRegions, c.regions[ask.Index].Size == 0:
		return syscall.EINVAL
	}
	var parts []IOFD
	if dev, ok := c.dev.(IOFDs); ok {
		parts = dev.RegionIOFDs(int(ask.Index))
	}
	entry := wire.SubRegionSize
	if slices.ContainsFunc(parts, func(p IOFD) bool { return p.Type == IOEventFDShadow }) {
		entry = wire.SubRegionShadowSize
	}
	head := wire.RegionIO{
		Argsz: uint32(wire.RegionIOSize + len(parts)*entry),
		Index: ask.Index,
		Count: uint32(len(parts)),
	}
	if ask.Argsz < head.Argsz {
		wire.Append(c.body(wire.RegionIOSize)[:0], head)
		return 0
	}
	if head.Argsz > c.srv.opts.MaxDataXfer {
		return syscall.E2BIG
	}
	b := wire.Append(c.body(int(head.Argsz))[:0], head)
	for _, p := range parts {
		s, err := c.subRegion(&p)
		if err != nil {
			return errnoOf(err)
		}
		if entry == wire.SubRegionSize {
			b = s.Append(b)
		} else {
			b = s.AppendShadow(b)
		}
	}
	if len(c.outFDs) > c.client.maxMsgFDs || len(c.outFDs) > maxSCMFDs {
		return syscall.E2BIG
	}
	return 0
}

func (c *conn) subRegion(p *IOFD) (s wire.SubRegion, err error) {
	s = wire.SubRegion{
		Offset: p.Offset, Size: p.Size,
		Type: uint32(p.Type), Flags: p.Flags, DataMatch: p.DataMatch,
		ShadowOffset: p.ShadowOffset,
	}
	if s.FDIndex, err = c.outFDIndex(p.File); err != nil {
		return s, err
	}
	if p.Type == IOEventFDShadow {
		s.ShadowFD, err = c.outFDIndex(p.Shadow)
	}
	return s, err
}

// outFDIndex adds f to the descriptors of the present reply, once.
func (c *conn) outFDIndex(f *os.File) (uint32, error) {
	fd, err := rawFD(f)
	if err != nil {
		return 0, err
	}
	if i := slices.Index(c.outFDs, fd); i >= 0 {
		return uint32(i), nil
	}
	c.outFDs = append(c.outFDs, fd)
	return uint32(len(c.outFDs) - 1), nil
}
