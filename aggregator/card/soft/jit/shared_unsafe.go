package jit

import "unsafe"

// headOf is the start of memory that is aligned to pages.
func headOf(mem []byte) *head { return (*head)(unsafe.Pointer(unsafe.SliceData(mem))) }
