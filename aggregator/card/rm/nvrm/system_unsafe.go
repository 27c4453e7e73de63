package nvrm

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Ioctl implements File.
func (f hostFile) Ioctl(number uint8, arg []byte) error {
	const readWrite = 3
	request := readWrite<<30 | uintptr(len(arg))<<16 | 'F'<<8 | uintptr(number)
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(unsafe.Pointer(unsafe.SliceData(arg))))
		switch errno {
		case 0:
			return nil
		case unix.EINTR, unix.EAGAIN:
		default:
			return errno
		}
	}
}

// call makes a call with a structure.
func call[T any](f File, number uint8, p *T) error {
	return f.Ioctl(number, unsafe.Slice((*byte)(unsafe.Pointer(p)), unsafe.Sizeof(*p)))
}

// pinned calls f with the address of the parameters, which the structure of the call has.
func pinned[T any](p *T, f func(addr uint64, size uint32) error) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(p)
	return f(uint64(uintptr(unsafe.Pointer(p))), uint32(unsafe.Sizeof(*p)))
}

// addressOf returns where memory lies that Go's collector does not move.
func addressOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }
