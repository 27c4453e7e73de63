package engine

import "unsafe"

// addressOf is where a value is, for machine code that runs while it is held.
func addressOf[T any](v *T) uintptr { return uintptr(unsafe.Pointer(v)) }

func sliceAddress(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }
