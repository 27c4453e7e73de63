package vfiouser

import (
	"os"
	"slices"
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

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
