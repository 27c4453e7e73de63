package aperture

import (
	"sync/atomic"
	"unsafe"
)

// word is the 32-bit word at off of memory that others write too: engines and the
// guest's processors store naturally aligned words whole.
func word(mem []byte, off int) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off : off+4][0])) }

func load(mem []byte, off int) uint32 { return atomic.LoadUint32(word(mem, off)) }

func swap(mem []byte, off int, old, v uint32) bool {
	return atomic.CompareAndSwapUint32(word(mem, off), old, v)
}

func set(mem []byte, off int, v uint32) { atomic.StoreUint32(word(mem, off), v) }
