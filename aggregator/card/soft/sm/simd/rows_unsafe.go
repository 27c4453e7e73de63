package simd

import "unsafe"

// words returns the first bytes of b as a row. All processors that the card runs on are little-endian.
func words(b []byte) *row { return (*row)(unsafe.Pointer((*[len(row{}) * 4]byte)(b))) }

func loadRow(d *row, b []byte)  { *d = *words(b) }
func storeRow(b []byte, d *row) { *words(b) = *d }
