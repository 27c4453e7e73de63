package card

// MemoryFault tells a memory fault of the process, which a [Bus] over another
// process's memory may cause, from no panic at all: r is what recover returned, in
// a function that has called debug.SetPanicOnFault. Any other panic is a bug, and
// goes on up.
func MemoryFault(r any) bool {
	if r == nil {
		return false
	}
	if _, fault := r.(interface{ Addr() uintptr }); !fault {
		panic(r)
	}
	return true
}
