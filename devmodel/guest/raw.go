package guest

import (
	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// Raw is the device without a driver: any access of any width, any message. Any goroutine
// may use it concurrently with the driver, and its errors are the server's answers: they do
// not break the Guest.
type Raw struct{ g *Guest }

// Raw gives everything the guest can name.
func (g *Guest) Raw() Raw { return Raw{g} }

// Read reads len(p) bytes of a region in one access.
func (r Raw) Read(region int, off uint64, p []byte) error {
	return r.g.bus.call(func(c *client.Client) error { return c.Read(region, off, p) })
}

// Write writes p to a region in one access and waits for the reply.
func (r Raw) Write(region int, off uint64, p []byte) error {
	return r.g.bus.call(func(c *client.Client) error { return c.Write(region, off, p) })
}

// Post writes p to a region in one access without a reply.
func (r Raw) Post(region int, off uint64, p []byte) error {
	return r.g.bus.call(func(c *client.Client) error { return c.Post(region, off, p) })
}

// Reg reads a register.
func (r Raw) Reg(reg uint32) uint32 {
	var b [4]byte
	if err := r.Read(bar0, uint64(reg), b[:]); err != nil {
		return ^uint32(0)
	}
	return le.Uint32(b[:])
}

// SetReg writes a register.
func (r Raw) SetReg(reg, v uint32) error { return r.Post(bar0, uint64(reg), le.AppendUint32(nil, v)) }

// PRAMIN reads len(p) bytes at the place that window and offset name. window is
// NV_PBUS_BAR0_WINDOW's value: an address >> 16, and a target in bits 25:24.
func (r Raw) PRAMIN(window uint32, off uint64, p []byte) error {
	if err := r.SetReg(pbusWindow, window); err != nil {
		return err
	}
	return r.each(off, p, r.Read)
}

// SetPRAMIN is the reverse of PRAMIN.
func (r Raw) SetPRAMIN(window uint32, off uint64, p []byte) error {
	if err := r.SetReg(pbusWindow, window); err != nil {
		return err
	}
	return r.each(off, p, r.Post)
}

func (r Raw) each(off uint64, p []byte, do func(int, uint64, []byte) error) error {
	for len(p) > 0 {
		n := r.g.bus.piece(off, len(p))
		if err := do(bar0, pramin+off, p[:n]); err != nil {
			return err
		}
		off, p = off+uint64(n), p[n:]
	}
	return nil
}

// VRAM reads len(p) bytes at an address of VRAM, within one MiB. No buffer need be there.
func (r Raw) VRAM(addr uint64, p []byte) error {
	return r.PRAMIN(uint32(addr&^(praminSize-1)>>16), addr&(praminSize-1), p)
}

// SetVRAM is the reverse of VRAM.
func (r Raw) SetVRAM(addr uint64, p []byte) error {
	return r.SetPRAMIN(uint32(addr&^(praminSize-1)>>16), addr&(praminSize-1), p)
}

// Bind writes both words of a channel's entry in the channel table.
func (r Raw) Bind(id int, inst, control uint32) error {
	if err := r.SetReg(pccsrInst+uint32(id)*chanStride, inst); err != nil {
		return err
	}
	return r.SetReg(pccsrChannel+uint32(id)*chanStride, control)
}

// Runlist commits a runlist from any base register value.
func (r Raw) Runlist(base, commit uint32) error {
	if err := r.SetReg(pfifoRunlistBase, base); err != nil {
		return err
	}
	return r.SetReg(pfifoRunlist, commit)
}

// Invalidate triggers an invalidate of any directory, and waits for nothing.
func (r Raw) Invalidate(pdb, kind uint32) error {
	if err := r.SetReg(mmuPDB, pdb); err != nil {
		return err
	}
	return r.SetReg(mmuInvalidate, kind)
}

// Map maps part of the guest's RAM at any bus address.
func (r Raw) Map(addr, off, n uint64, rights uint32) error {
	return r.g.bus.call(func(c *client.Client) error { return c.Map(addr, r.g.mem, off, n, rights) })
}

// Unmap takes away what is mapped inside the n bytes at a bus address.
func (r Raw) Unmap(addr, n uint64) error {
	return r.g.bus.call(func(c *client.Client) error { return c.Unmap(addr, n) })
}

// UnmapAll takes all DMA mappings away.
func (r Raw) UnmapAll() error {
	return r.g.bus.call(func(c *client.Client) error { return c.UnmapAll() })
}

// Client is the connection, for messages that are no accesses.
func (r Raw) Client() *client.Client { return r.g.client }
