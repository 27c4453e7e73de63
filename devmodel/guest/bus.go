package guest

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/vfiouser/client"
)

// Access is how writes reach the server.
type Access int

const (
	// Posted writes have no reply, as QEMU sends them to a device of which it maps
	// nothing.
	Posted Access = iota
	// Replied writes wait for their reply, as QEMU's do once it maps any region.
	Replied
	// Multi collects writes into REGION_WRITE_MULTI.
	Multi
)

// Bounds of one batch of messages.
const (
	maxPosted    = 1500 // messages
	maxPipelined = 1000 // reads: their replies must fit a socket
	maxMulti     = 200  // entries, QEMU's own bound
)

// bus makes single accesses of what the driver reads and writes. mu guards it
// all; a broken connection stays broken.
type bus struct {
	mu     sync.Mutex
	client *client.Client
	access Access
	width  int // of an access to memory, in bytes: 4 or 8

	mapped []mapping // what needs no access

	posts *client.Batch
	n     int // posts collected
	multi []client.MultiWrite
	reads *client.Batch
	err   error
}

func newBus(c *client.Client, cfg *Config) *bus {
	return &bus{client: c, access: cfg.Access, width: cfg.Width, posts: c.Batch(), reads: c.Batch()}
}

func (b *bus) fail(err error) {
	if err != nil && b.err == nil {
		b.err = err
	}
}

// failed returns what broke the connection.
func (b *bus) failed() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// mapping is a part of a BAR that the guest's processors reach directly.
type mapping struct {
	region int
	off    uint64
	mem    []byte
}

// direct returns the memory behind n bytes at off, to the end of the mapping, or nil
// if they are not all mapped.
func (b *bus) direct(region int, off uint64, n int) []byte {
	for i := range b.mapped {
		m := &b.mapped[i]
		if m.region == region && off >= m.off && off-m.off+uint64(n) <= uint64(len(m.mem)) {
			return m.mem[off-m.off:]
		}
	}
	return nil
}

func (b *bus) unmap() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	var errs []error
	for _, m := range b.mapped {
		errs = append(errs, unix.Munmap(m.mem))
	}
	b.mapped = nil
	return errors.Join(errs...)
}

// piece returns how much of n bytes at off the next access moves.
func (b *bus) piece(off uint64, n int) int {
	size := b.width
	for size > n || off%uint64(size) != 0 {
		size /= 2
	}
	return size
}

// write sends or collects the writing of p.
func (b *bus) write(region int, off uint64, p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if mem := b.direct(region, off, len(p)); mem != nil {
		b.flush()
		b.store(mem, off, p)
		return
	}
	for len(p) > 0 && b.err == nil {
		n := b.piece(off, len(p))
		b.write1(region, off, p[:n])
		off, p = off+uint64(n), p[n:]
	}
}

// store writes p to mapped memory as a processor does: naturally aligned pieces in one
// go each.
func (b *bus) store(mem []byte, off uint64, p []byte) {
	for len(p) > 0 {
		n := b.piece(off, len(p))
		switch n {
		case 8:
			le.PutUint64(mem, le.Uint64(p))
		case 4:
			le.PutUint32(mem, le.Uint32(p))
		case 2:
			le.PutUint16(mem, le.Uint16(p))
		default:
			mem[0] = p[0]
		}
		mem, off, p = mem[n:], off+uint64(n), p[n:]
	}
}

// load is the reverse of store.
func (b *bus) load(p []byte, off uint64, mem []byte) { b.store(p, off, mem[:len(p)]) }

func (b *bus) write1(region int, off uint64, p []byte) {
	switch b.access {
	case Replied:
		b.fail(b.client.Write(region, off, p))
		return
	case Multi:
		b.multi = append(b.multi, client.MultiWrite{Region: region, Offset: off, Data: append([]byte(nil), p...)})
		if len(b.multi) >= maxMulti {
			b.flush()
		}
		return
	}
	b.posts.Post(region, off, p)
	if b.n++; b.n >= maxPosted {
		b.flush()
	}
}

// flush sends what was collected. mu is held.
func (b *bus) flush() {
	if b.err != nil {
		return
	}
	if len(b.multi) > 0 {
		b.fail(b.client.PostMulti(b.multi))
		b.multi = b.multi[:0]
	}
	if b.n > 0 {
		b.fail(b.posts.Do())
		b.posts.Clear()
		b.n = 0
	}
}

// sync sends what was collected.
func (b *bus) sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flush()
	return b.err
}

// read fills p. After a failure it reads as ones, like a bus without a device.
func (b *bus) read(region int, off uint64, p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flush()
	if mem := b.direct(region, off, len(p)); mem != nil {
		b.load(p, off, mem)
		return
	}
	if b.err == nil && b.piece(off, len(p)) == len(p) {
		b.fail(b.client.Read(region, off, p))
	} else if b.err == nil {
		b.pipeline(region, off, p)
	}
	if b.err != nil {
		for i := range p {
			p[i] = 0xff
		}
	}
}

func (b *bus) pipeline(region int, off uint64, p []byte) {
	for len(p) > 0 && b.err == nil {
		b.reads.Clear()
		for i := 0; i < maxPipelined && len(p) > 0; i++ {
			n := b.piece(off, len(p))
			b.reads.Read(region, off, p[:n])
			off, p = off+uint64(n), p[n:]
		}
		b.fail(b.reads.Do())
	}
}

// call runs fn in order with the accesses before it, for messages that are none.
func (b *bus) call(fn func(*client.Client) error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.flush()
	if b.err != nil {
		return fmt.Errorf("guest: the connection is broken: %w", b.err)
	}
	return fn(b.client)
}
