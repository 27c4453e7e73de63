package card

// MemoryFault reports whether r, the result of recover in a function that called
// debug.SetPanicOnFault, is a memory fault of the process. A [Mapping] of another
// process's memory may cause one. Any other panic is a bug, and MemoryFault panics again.
func MemoryFault(r any) bool {
	if r == nil {
		return false
	}
	if _, fault := r.(interface{ Addr() uintptr }); !fault {
		panic(r)
	}
	return true
}
