package process

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
)

// cardMemory is the card's memory. All of it has addresses here, of which the server lets the guest's parts be mapped.
type cardMemory struct {
	mem    []byte
	mapped map[[2]uint64]bool // offsets and sizes
}

func openCard() (*cardMemory, error) {
	c := &cardMemory{mapped: make(map[[2]uint64]bool)}
	var info unix.Stat_t
	if err := unix.Fstat(jit.CardFD, &info); err != nil {
		return nil, fmt.Errorf("the card's memory: %w", err)
	}
	if info.Size == 0 {
		return c, nil
	}
	var err error
	if c.mem, err = unix.Mmap(-1, 0, int(info.Size), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE); err != nil {
		return nil, fmt.Errorf("addresses for the card's %d bytes of memory: %w", info.Size, err)
	}
	return c, nil
}

// piece returns n bytes, which the server has given.
func (c *cardMemory) piece(off, n uint64) ([]byte, error) {
	if size := uint64(len(c.mem)); off > size || n > size-off || n == 0 {
		return nil, fmt.Errorf("%d bytes at %#x of the card's memory, which has %#x", n, off, size)
	}
	mem := c.mem[off : off+n]
	if c.mapped[[2]uint64{off, n}] {
		return mem, nil
	}
	_, err := unix.MmapPtr(jit.CardFD, int64(off), unsafe.Pointer(unsafe.SliceData(mem)), uintptr(n),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes at %#x of the card's memory: %w", n, off, err)
	}
	c.mapped[[2]uint64{off, n}] = true
	return mem, nil
}
