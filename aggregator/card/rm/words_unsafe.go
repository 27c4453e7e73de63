package rm

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

func word(mem []byte, off uint64) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off : off+4][0])) }

func load(mem []byte, off uint64) uint32 { return atomic.LoadUint32(word(mem, off)) }

func store(mem []byte, off uint64, v uint32) { atomic.StoreUint32(word(mem, off), v) }

// writeDoorbell writes a doorbell: by a plain store, because the card takes 180 us for an exchange, after a locked operation, which
// empties the processor's buffers of combined writes.
func writeDoorbell(bell []byte, off uint64, token uint32, fence *atomic.Uint32) {
	fence.Add(1)
	*word(bell, off) = token
	fence.Add(1)
}

// remap makes pages of mem those of f at off. A concurrent access finds the old ones or the new ones.
func remap(mem []byte, f *os.File, off uint64) error {
	_, err := unix.MmapPtr(int(f.Fd()), int64(off), unsafe.Pointer(&mem[0]), uintptr(len(mem)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}

// vacate makes pages of mem nothing's.
func vacate(mem []byte) error {
	_, err := unix.MmapPtr(-1, 0, unsafe.Pointer(&mem[0]), uintptr(len(mem)), unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}
