package probe

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

type conversation struct {
	nc        *net.UnixConn
	got       int64 // bytes received
	id        uint16
	fds       int         // received with the last reply, and closed
	firstByte func() bool // called when the first byte has arrived
}

const capabilities = `{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576,"pgsizes":4096,"max_dma_maps":65535,"migration":{"pgsize":4096},"write_multiple":true}}` + "\x00"

func (c *conversation) look(d *Device) error {
	p, err := c.ask(wire.Version, append([]byte{0, 0, 0, 0}, capabilities...), wire.VersionSize)
	if err != nil {
		return err
	}
	d.Version = fmt.Sprintf("%d.%d", le.Uint16(p), le.Uint16(p[2:]))
	if err := d.takeCapabilities(p[wire.VersionSize:]); err != nil {
		return c.broken(wire.Version, "the capabilities", err)
	}
	p, err = c.ask(wire.DeviceGetInfo, wire.Append(nil, wire.DeviceInfo{Argsz: wire.DeviceInfoSize}), wire.DeviceInfoSize)
	if err != nil {
		return err
	}
	info := wire.Parse[wire.DeviceInfo](p)
	d.Reset, d.PCI = info.Flags&wire.DeviceFlagReset != 0, info.Flags&wire.DeviceFlagPCI != 0
	const most = 256
	if info.NumRegions > most || info.NumIRQs > most {
		return c.broken(wire.DeviceGetInfo, "the payload", fmt.Errorf("%w: %d regions, %d interrupts", ErrNonsense, info.NumRegions, info.NumIRQs))
	}
	for i := range info.NumRegions {
		r, err := c.region(i)
		if err != nil {
			return err
		}
		if r.Size > 0 {
			d.Regions = append(d.Regions, r)
		}
	}
	for i := range info.NumIRQs {
		q, err := c.irq(i)
		if err != nil {
			return err
		}
		d.IRQs = append(d.IRQs, q)
	}
	return c.config(d)
}

func (d *Device) takeCapabilities(text []byte) error {
	if len(text) == 0 {
		return nil
	}
	if text[len(text)-1] != 0 {
		return fmt.Errorf("%w: JSON without its NUL", ErrNonsense)
	}
	var doc struct {
		Capabilities json.RawMessage `json:"capabilities"`
	}
	if err := json.Unmarshal(text[:len(text)-1], &doc); err != nil {
		return fmt.Errorf("%w: %w", ErrNonsense, err)
	}
	d.Capabilities = doc.Capabilities
	return nil
}

var regionNames = [...]string{"BAR0", "BAR1", "BAR2", "BAR3", "BAR4", "BAR5", "ROM", "configuration", "VGA"}

func name(names []string, i uint32) string {
	if int(i) < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%d", i)
}

// region queries a region, again with more space if its capabilities did not fit.
func (c *conversation) region(i uint32) (Region, error) {
	argsz := uint32(wire.RegionInfoSize)
	p, err := c.ask(wire.DeviceGetRegionInfo, wire.Append(nil, wire.RegionInfo{Argsz: argsz, Index: i}), wire.RegionInfoSize)
	if err != nil {
		return Region{}, err
	}
	info := wire.Parse[wire.RegionInfo](p)
	if info.Argsz > argsz && info.Argsz <= 1<<20 {
		p, err = c.ask(wire.DeviceGetRegionInfo, wire.Append(nil, wire.RegionInfo{Argsz: info.Argsz, Index: i}), wire.RegionInfoSize)
		if err != nil {
			return Region{}, err
		}
		info = wire.Parse[wire.RegionInfo](p)
	}
	r := Region{
		Index: i, Name: name(regionNames[:], i), Size: info.Size, Offset: info.Offset, Files: c.fds,
		Read: info.Flags&wire.RegionFlagRead != 0, Write: info.Flags&wire.RegionFlagWrite != 0, Mmap: info.Flags&wire.RegionFlagMmap != 0,
	}
	if info.Flags&wire.RegionFlagCaps != 0 {
		if r.Areas, _, err = wire.ParseSparse(p, info.CapOffset); err != nil {
			return r, c.broken(wire.DeviceGetRegionInfo, "the capabilities", fmt.Errorf("%w: %w", ErrNonsense, err))
		}
	}
	return r, nil
}

var irqNames = [...]string{"INTx", "MSI", "MSI-X", "ERR", "REQ"}

var irqFlags = []struct {
	bit  uint32
	name string
}{{wire.IRQFlagEventFD, "eventfd"}, {wire.IRQFlagMaskable, "maskable"}, {wire.IRQFlagAutomasked, "automasked"}, {wire.IRQFlagNoResize, "noresize"}}

func (c *conversation) irq(i uint32) (IRQ, error) {
	p, err := c.ask(wire.DeviceGetIRQInfo, wire.Append(nil, wire.IRQInfo{Argsz: wire.IRQInfoSize, Index: i}), wire.IRQInfoSize)
	if err != nil {
		return IRQ{}, err
	}
	info := wire.Parse[wire.IRQInfo](p)
	q := IRQ{Index: i, Name: name(irqNames[:], i), Count: info.Count, Flags: []string{}}
	for _, f := range irqFlags {
		if info.Flags&f.bit != 0 {
			q.Flags = append(q.Flags, f.name)
		}
	}
	return q, nil
}

const configIndex = 7

func (c *conversation) config(d *Device) error {
	for _, r := range d.Regions {
		if r.Index != configIndex || r.Size < 64 {
			continue
		}
		n := uint32(min(r.Size, 4096))
		p, err := c.ask(wire.RegionRead, wire.Append(nil, wire.RegionAccess{Region: configIndex, Count: n}), wire.RegionAccessSize+int(n))
		if err != nil {
			return err
		}
		d.Config = Decode(p[wire.RegionAccessSize:][:n], d.Regions)
	}
	return nil
}

func (c *conversation) broken(cmd wire.Command, reading string, err error) error {
	return &Broken{Offset: c.got, Request: cmd.String(), Reading: reading, Err: err}
}

// ask sends a command and returns the payload of its reply, which has at least least bytes.
func (c *conversation) ask(cmd wire.Command, payload []byte, least int) ([]byte, error) {
	c.id++
	c.fds = 0
	m := wire.Message(wire.Header{ID: c.id, Command: cmd}, payload)
	if _, err := c.nc.Write(m); err != nil && !errors.Is(err, unix.EPIPE) {
		return nil, c.broken(cmd, "the header", err) // after EPIPE a last message may be there
	}
	head := make([]byte, wire.HeaderSize)
	start := c.got
	if err := c.read(head); err != nil {
		return nil, c.broken(cmd, "the header", err)
	}
	h := wire.Parse[wire.Header](head)
	wrong := func(at int64, format string, args ...any) error {
		return &Broken{start + at, cmd.String(), "the header", fmt.Errorf("%w: %s (% x)", ErrNonsense, fmt.Sprintf(format, args...), head)}
	}
	switch {
	case h.ID != c.id:
		return nil, wrong(0, "message id %d where %d was due", h.ID, c.id)
	case h.Command != cmd:
		return nil, wrong(2, "%v", h.Command)
	case h.Flags&wire.TypeMask != wire.TypeReply:
		return nil, wrong(8, "flags %#x: no reply", h.Flags)
	case h.Flags&wire.Error != 0:
		return nil, &Broken{start + 12, cmd.String(), "the header", fmt.Errorf("the server refuses: %w", unix.Errno(h.Errno))}
	case h.Size < uint32(wire.HeaderSize+least) || h.Size > 1<<20+64:
		return nil, wrong(4, "%d bytes", h.Size)
	}
	p := make([]byte, h.Size-wire.HeaderSize)
	if err := c.read(p); err != nil {
		return nil, c.broken(cmd, "the payload", err)
	}
	return p, nil
}

func (c *conversation) read(p []byte) error {
	for len(p) > 0 {
		oob := make([]byte, unix.CmsgSpace(253*4))
		n, oobn, _, _, err := c.nc.ReadMsgUnix(p, oob)
		if oobn > 0 {
			c.closeFDs(oob[:oobn])
		}
		n = max(n, 0) // -1 with an error
		if c.got == 0 && n > 0 {
			c.firstByte()
		}
		c.got += int64(n)
		p = p[n:]
		switch {
		case err == nil && n == 0, errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
			return errClosed
		case err != nil:
			return err
		}
	}
	return nil
}

func (c *conversation) closeFDs(oob []byte) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return
	}
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			continue
		}
		c.fds += len(fds)
		for _, fd := range fds {
			unix.Close(fd)
		}
	}
}
