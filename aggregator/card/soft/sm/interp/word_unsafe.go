package interp

import "unsafe"

// Word returns 4 bytes of memory, at an aligned address, for package atomic: programs change words at
// once for all processors. All processors that the card runs on are little-endian.
func Word(b []byte) *uint32 { return (*uint32)(unsafe.Pointer((*[4]byte)(b))) }

// Long is Word for 8 bytes.
func Long(b []byte) *uint64 { return (*uint64)(unsafe.Pointer((*[8]byte)(b))) }
