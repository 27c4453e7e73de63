package object

import "unsafe"

// base is where the memory is: it is not Go's, so it does not move.
func (c *Code) base() uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(c.memory))) }
