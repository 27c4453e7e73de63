package client

import (
	"errors"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/wire"
)

// Memory is shared memory to map for DMA.
type Memory struct {
	FD   int
	Data []byte
}

// Alloc makes n bytes of shared memory in a memfd.
func Alloc(n int) (*Memory, error) {
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	if err := unix.Ftruncate(fd, int64(n)); err != nil {
		unix.Close(fd)
		return nil, err
	}
	data, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &Memory{fd, data}, nil
}

// Close frees the memory. A server that has mapped it keeps its pages.
func (m *Memory) Close() error {
	return errors.Join(unix.Munmap(m.Data), unix.Close(m.FD))
}

// Rights of a mapping, to be added.
const (
	Readable  = wire.DMARdAllowed
	Writable  = wire.DMAWrAllowed
	ReadWrite = Readable | Writable
)

type mapping struct {
	addr uint64
	data []byte
	prot uint32
}

// Map maps size bytes of m from off at bus address addr, with its descriptor.
func (c *Client) Map(addr uint64, m *Memory, off, size uint64, rights uint32) error {
	return c.mapAt(addr, m, off, size, rights, m.FD)
}

// MapNoFD maps like Map, but without a descriptor: the server reaches it by message only.
func (c *Client) MapNoFD(addr uint64, m *Memory, off, size uint64, rights uint32) error {
	return c.mapAt(addr, m, off, size, rights)
}

func (c *Client) mapAt(addr uint64, m *Memory, off, size uint64, rights uint32, fds ...int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := wire.DMAMapRequest{Argsz: wire.DMAMapSize, Flags: rights, Offset: off, Addr: addr, Size: size}
	if _, err := c.call(wire.DMAMap, wire.Append(nil, q), fds); err != nil {
		return err
	}
	if off <= uint64(len(m.Data)) && size <= uint64(len(m.Data))-off {
		c.maps = append(c.maps, mapping{addr, m.Data[off : off+size], rights})
	}
	return nil
}

// Unmap takes back the mappings inside the size bytes at addr.
func (c *Client) Unmap(addr, size uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := wire.DMAUnmapRequest{Argsz: wire.DMAUnmapSize, Addr: addr, Size: size}
	if err := c.unmap(u); err != nil {
		return err
	}
	c.maps = slices.DeleteFunc(c.maps, func(m mapping) bool { return m.addr >= addr && m.addr-addr < size })
	return nil
}

// UnmapAll takes back all mappings.
func (c *Client) UnmapAll() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.unmap(wire.DMAUnmapRequest{Argsz: wire.DMAUnmapSize, Flags: wire.UnmapAll}); err != nil {
		return err
	}
	c.maps = nil
	return nil
}

func (c *Client) unmap(u wire.DMAUnmapRequest) error {
	m, err := c.call(wire.DMAUnmap, wire.Append(nil, u), nil)
	if err != nil {
		return err
	}
	if len(m.Payload) != wire.DMAUnmapSize || wire.Parse[wire.DMAUnmapRequest](m.Payload) != u {
		return ErrProtocol
	}
	return nil
}

// OnDMA sets fn, which is called before each of the server's DMA requests is answered; an
// Errno it returns is the answer.
func (c *Client) OnDMA(fn func(cmd wire.Command, addr uint64, n int) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.onDMA = fn
}

// serve answers one of the server's requests as QEMU 11.1 does.
func (c *Client) serve(m Message) error {
	closeFDs(m.FDs)
	reply, errno := c.dma(m)
	h := wire.Header{ID: m.ID, Command: m.Command, Flags: wire.TypeReply}
	if errno != 0 {
		h.Flags |= wire.Error
		h.Errno = uint32(errno)
	}
	return c.send(wire.Message(h, reply), nil)
}

func (c *Client) dma(m Message) (reply []byte, errno Errno) {
	if m.Command != wire.DMARead && m.Command != wire.DMAWrite {
		return nil, unix.ENOSYS
	}
	if len(m.Payload) < wire.DMAAccessSize || len(m.FDs) > 0 {
		return nil, unix.EINVAL
	}
	a := wire.Parse[wire.DMAAccess](m.Payload)
	if a.Count > wire.DefaultMaxDataXfer {
		return nil, unix.E2BIG
	}
	if c.onDMA != nil {
		if err := c.onDMA(m.Command, a.Addr, int(a.Count)); err != nil {
			errors.As(err, &errno)
			return nil, errno
		}
	}
	want := Readable
	if m.Command == wire.DMAWrite {
		want = Writable
	}
	p := c.guest(a.Addr, a.Count, want)
	if p == nil {
		return nil, unix.EFAULT
	}
	if m.Command == wire.DMARead {
		return append(wire.Append(nil, a), p...), 0
	}
	data := m.Payload[wire.DMAAccessSize:]
	if uint64(len(data)) != a.Count {
		return nil, unix.EINVAL
	}
	copy(p, data)
	return wire.Append(nil, a), 0
}

func (c *Client) guest(addr, n uint64, rights uint32) []byte {
	for _, m := range c.maps {
		if size := uint64(len(m.data)); addr >= m.addr && addr-m.addr < size && n <= size-(addr-m.addr) && m.prot&rights != 0 {
			return m.data[addr-m.addr:][:n]
		}
	}
	return nil
}
