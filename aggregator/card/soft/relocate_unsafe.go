package soft

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// remap makes n bytes of the card's memory at addr those of f at off. A concurrent access finds
// the old ones or the new ones.
func (v *vram) remap(addr, n uint64, f *os.File, off uint64) error {
	at := unsafe.Pointer(&v.mem[addr : addr+n][0])
	_, err := unix.MmapPtr(int(f.Fd()), int64(off), at, uintptr(n),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED|unix.MAP_NORESERVE)
	return err
}
