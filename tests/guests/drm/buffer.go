package drm

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Domain is where a buffer may live, a set of bits.
type Domain uint32

// Domains. Source: nouveau_drm.h.
const (
	DomainVRAM Domain = 1 << 1
	DomainGART Domain = 1 << 2
)

// String names the placement bits.
func (d Domain) String() string {
	switch d & (DomainVRAM | DomainGART) {
	case DomainVRAM:
		return "vram"
	case DomainGART:
		return "gart"
	case DomainVRAM | DomainGART:
		return "vram|gart"
	}
	return fmt.Sprintf("%#x", uint32(d))
}

// tileNonContig lets VRAM come in pieces. Without it a large buffer needs one
// free run, which a fragmented VRAM may not have.
const tileNonContig = 0x8

// Buffer is a GEM object, mapped at VA in its client's GPU address space for
// as long as it lives. A move between VRAM and GART leaves the VA alone.
type Buffer struct {
	dev       *Device
	handle    uint32
	size      uint64
	va        uint64
	mapHandle uint64
	cpu       []byte
}

// NewBuffer makes a buffer of at least size bytes that may live in domains.
// The kernel rounds the size up to its page size.
func (d *Device) NewBuffer(size uint64, domains Domain) (*Buffer, error) {
	req := &gemNew{Info: gemInfo{Domain: uint32(domains), Size: size, TileFlags: tileNonContig}}
	if err := ioctl(d.f, "GEM_NEW", ioctlGEMNew, unsafe.Pointer(req)); err != nil {
		return nil, fmt.Errorf("%d bytes in %v: %w", size, domains, err)
	}
	i := req.Info
	return &Buffer{dev: d, handle: i.Handle, size: i.Size, va: i.Offset, mapHandle: i.MapHandle}, nil
}

// Size is the size in bytes that the kernel gave.
func (b *Buffer) Size() uint64 { return b.size }

// VA is the GPU virtual address.
func (b *Buffer) VA() uint64 { return b.va }

// Domain asks where the buffer is now. For a buffer with one valid domain the
// kernel answers that domain, wherever eviction has put it.
func (b *Buffer) Domain() (Domain, error) {
	req := &gemInfo{Handle: b.handle}
	err := ioctl(b.dev.f, "GEM_INFO", ioctlGEMInfo, unsafe.Pointer(req))
	return Domain(req.Domain), err
}

// Bytes maps the buffer for the CPU, once, and returns the mapping: RAM for a
// buffer in GART, the BAR1 window for one in VRAM. It follows the buffer's moves.
func (b *Buffer) Bytes() ([]byte, error) {
	if b.cpu != nil {
		return b.cpu, nil
	}
	m, err := unix.Mmap(int(b.dev.f.Fd()), int64(b.mapHandle), int(b.size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap of a %d-byte buffer: %w", b.size, err)
	}
	b.cpu = m
	return m, nil
}

// prepWrite is a flag of CPU_PREP.
const prepWrite = 4

// Wait blocks until the GPU no longer writes the buffer, or with write no
// longer uses it at all. The kernel gives up after 30 s with EBUSY. It returns nil too
// when the fence ended in error: a killed channel is seen by Channel.Alive.
func (b *Buffer) Wait(write bool) error {
	req := &gemCPUPrep{Handle: b.handle}
	if write {
		req.Flags = prepWrite
	}
	return ioctl(b.dev.f, "GEM_CPU_PREP", ioctlGEMCPUPrep, unsafe.Pointer(req))
}

// Close unmaps and frees the buffer.
func (b *Buffer) Close() error {
	if b.cpu != nil {
		if err := unix.Munmap(b.cpu); err != nil {
			return err
		}
		b.cpu = nil
	}
	req := &gemClose{Handle: b.handle}
	return ioctl(b.dev.f, "GEM_CLOSE", ioctlGEMClose, unsafe.Pointer(req))
}
