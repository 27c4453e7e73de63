package vfiouser

import (
	"syscall"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// checkAccess refuses an access that is not wholly inside a region that allows it.
func (c *conn) checkAccess(a *wire.RegionAccess, need RegionFlags) syscall.Errno {
	if a.Region >= NumRegions || a.Count > c.srv.opts.MaxDataXfer {
		return syscall.EINVAL
	}
	r := &c.regions[a.Region]
	if r.Flags&need == 0 || a.Offset > r.Size || uint64(a.Count) > r.Size-a.Offset {
		return syscall.EINVAL
	}
	return 0
}

func (c *conn) regionRead(rq *request) syscall.Errno {
	a := wire.Parse[wire.RegionAccess](rq.payload)
	if errno := c.checkAccess(&a, RegionRead); errno != 0 || a.Count == 0 {
		return errno
	}
	b := c.body(wire.RegionAccessSize + int(a.Count))
	wire.Put(b, a)
	return errnoOf(c.dev.ReadRegion(int(a.Region), a.Offset, b[wire.RegionAccessSize:]))
}

func (c *conn) regionWrite(rq *request) syscall.Errno {
	a := wire.Parse[wire.RegionAccess](rq.payload)
	data := rq.payload[wire.RegionAccessSize:]
	if uint64(len(data)) != uint64(a.Count) {
		return syscall.EINVAL
	}
	if errno := c.checkAccess(&a, RegionWrite); errno != 0 || a.Count == 0 {
		return errno
	}
	if err := c.dev.WriteRegion(int(a.Region), a.Offset, data); err != nil {
		return errnoOf(err)
	}
	if rq.hdr.Flags&wire.NoReply == 0 {
		wire.Put(c.body(wire.RegionAccessSize), a)
	}
	return 0
}

// regionWriteMulti serves REGION_WRITE_MULTI. Its entries are independent writes: one that
// fails does not stop those after it. The reply has the number of successful ones.
func (c *conn) regionWriteMulti(rq *request) syscall.Errno {
	n := le.Uint64(rq.payload)
	entries := rq.payload[wire.WriteMultiSize:]
	if !c.client.writeMulti || n != uint64(len(entries))/wire.WriteMultiEntry || len(entries)%wire.WriteMultiEntry != 0 {
		return syscall.EINVAL
	}
	done, failed := uint64(0), syscall.Errno(0)
	for ; len(entries) > 0; entries = entries[wire.WriteMultiEntry:] {
		if errno := c.writeEntry(entries[:wire.WriteMultiEntry]); errno != 0 {
			failed = errno
			continue
		}
		done++
	}
	if failed != 0 {
		add(&c.srv.stats.command(wire.RegionWriteMulti).Errors, n-done)
	}
	if done == 0 && failed != 0 {
		return failed
	}
	le.PutUint64(c.body(wire.WriteMultiSize), done)
	return 0
}

func (c *conn) writeEntry(e []byte) syscall.Errno {
	a := wire.Parse[wire.RegionAccess](e)
	if a.Count > wire.WriteMultiMaxData {
		return syscall.EINVAL
	}
	if errno := c.checkAccess(&a, RegionWrite); errno != 0 || a.Count == 0 {
		return errno
	}
	data := e[wire.RegionAccessSize:][:a.Count:a.Count]
	return c.contained(wire.RegionWriteMulti.String(), func() syscall.Errno {
		return errnoOf(c.dev.WriteRegion(int(a.Region), a.Offset, data))
	})
}

func (c *conn) reset(*request) syscall.Errno {
	if err := c.dev.Reset(); err != nil {
		return errnoOf(err)
	}
	c.irqs.clearAll()
	c.state = stateRunning
	return 0
}
