package engine

import "unsafe"

// addressOf is where a value is, for machine code that runs while it is held.
func addressOf[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

func sliceAddress(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// hostBytes is memory that Go does not manage.
func hostBytes(at uint64, n int) []byte {
	return unsafe.Slice(*(**byte)(unsafe.Pointer(&at)), n)
}

func word32(b []byte) *uint32 { return (*uint32)(unsafe.Pointer(unsafe.SliceData(b))) }

func word64(b []byte) *uint64 { return (*uint64)(unsafe.Pointer(unsafe.SliceData(b))) }
