package vfiouser

import (
	"errors"
	"fmt"
	"log/slog"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

func (c *conn) dmaMap(rq *request) syscall.Errno {
	m := wire.Parse[wire.DMAMapRequest](rq.payload)
	const page = pageSize - 1
	const uses = wire.DMAUseMmap | wire.DMAUseFileIO
	if m.Argsz < wire.DMAMapSize ||
		m.Flags&^(wire.DMARdAllowed|wire.DMAWrAllowed|uses) != 0 ||
		m.Flags&uses == uses ||
		m.Flags&uses != 0 && len(rq.fds) == 0 ||
		m.Size == 0 ||
		(m.Addr|m.Size|m.Offset)&page != 0 ||
		m.Addr+(m.Size-1) < m.Addr ||
		m.Offset > 1<<62 {
		return syscall.EINVAL
	}
	q := mapRequest{addr: m.Addr, size: m.Size, offset: m.Offset, fd: -1, fileIO: m.Flags&wire.DMAUseFileIO != 0}
	if m.Flags&wire.DMARdAllowed != 0 {
		q.prot |= unix.PROT_READ
	}
	if m.Flags&wire.DMAWrAllowed != 0 {
		q.prot |= unix.PROT_WRITE
	}
	if len(rq.fds) > 0 {
		q.fd = rq.fds[0]
	}
	err := c.mem.add(q, &c.srv.opts)
	var broken refusal
	switch {
	case err == nil:
		c.noteShared(&q)
		if q.fd >= 0 && inMemory(q.fd) {
			unix.Close(rq.take(0)) // does not wait, for the range holds the file
		}
	case errors.As(err, &broken):
		c.srv.refuse(DMARule(broken), slog.String("address", fmt.Sprintf("%#x", m.Addr)), slog.String("size", fmt.Sprintf("%#x", m.Size)))
	}
	return errnoOf(err)
}

// mainMemory is a range that is too large for firmware and tables: memory of the guest.
const mainMemory = 1 << 20

// noteShared logs once that a client does not share its memory. Such memory is reached by one
// message per access, and not at all from within a trap, so the device is slow or its driver
// reads garbage, and only this line explains it.
func (c *conn) noteShared(q *mapRequest) {
	if q.fd >= 0 {
		c.shares = true
	}
	if c.shares || c.noted || q.size < mainMemory || q.prot&unix.PROT_WRITE == 0 {
		return
	}
	c.noted = true
	c.srv.warn(&c.srv.logMemory, "the client does not share its memory, so the device can hardly reach it; start QEMU with -object memory-backend-memfd,id=mem,size=SIZE,share=on and -machine memory-backend=mem",
		slog.String("address", fmt.Sprintf("%#x", q.addr)), slog.String("size", fmt.Sprintf("%#x", q.size)))
}

// dmaUnmap serves DMA_UNMAP. It returns only when the device no longer uses the range.
func (c *conn) dmaUnmap(rq *request) syscall.Errno {
	u := wire.Parse[wire.DMAUnmapRequest](rq.payload)
	if u.Argsz < wire.DMAUnmapSize || u.Argsz > c.srv.opts.MaxDataXfer {
		return syscall.EINVAL
	}
	switch u.Flags {
	case 0:
		if err := c.mem.remove(u.Addr, u.Size); err != nil {
			return errnoOf(err)
		}
	case wire.UnmapAll:
		if u.Addr != 0 || u.Size != 0 {
			return syscall.EINVAL
		}
		c.mem.removeAll()
	default:
		return syscall.EINVAL
	}
	copy(c.body(wire.DMAUnmapSize), rq.payload)
	return 0
}

// checkBitmap refuses a dirty bitmap with an invalid page size, or one that exceeds a
// message.
func (c *conn) checkBitmap(size, pageSz uint64) syscall.Errno {
	if pageSz == 0 || pageSz&(pageSz-1) != 0 || size == 0 || size > maxRange {
		return syscall.EINVAL
	}
	if bitmapBytes(size, pageSz) > uint64(c.srv.opts.MaxDataXfer) {
		return syscall.E2BIG
	}
	return 0
}
