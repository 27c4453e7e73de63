// Package nvrm makes channels on a card through the host's NVIDIA driver: the calls of its resource manager (RM),
// which any user may make. A [Client] has objects by handle: memory, address spaces, channels. The driver frees
// all of them when the process ends.
//
// The structures are those of package nvgpu (gvisor.dev/gvisor) where it has them, else in abi.go; they depend on the driver's
// release. Sources: nvos.h, and the class and ctrl headers of NVIDIA's open-gpu-kernel-modules.
//
// There are no goroutines or locks: the owner makes one call at a time, except that [Events.Next] may run beside
// the others.
package nvrm

import (
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System has the driver's device files.
type System interface {
	// Open opens a device file, for example "nvidiactl".
	Open(name string) (File, error)
	// Release is the driver's release, for example "580.95.05".
	Release() (string, error)
}

// File is an open device file of the driver.
type File interface {
	// Ioctl makes a call of the driver. arg is its structure of size bytes.
	Ioctl(number uint8, arg unsafe.Pointer, size uintptr) error
	// OS is the file itself, for another process, for mmap and for poll.
	OS() *os.File
	Close() error
}

// Host is the system of this machine.
type Host struct{}

type hostFile struct{ *os.File }

// Open implements System.
func (Host) Open(name string) (File, error) {
	f, err := os.OpenFile("/dev/"+name, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return hostFile{f}, nil
}

// Release implements System.
func (Host) Release() (string, error) {
	b, err := os.ReadFile("/proc/driver/nvidia/version")
	if err != nil {
		return "", fmt.Errorf("the NVIDIA driver is not loaded: %w", err)
	}
	return parseRelease(string(b))
}

// OS implements File.
func (f hostFile) OS() *os.File { return f.File }

// Ioctl implements File.
func (f hostFile) Ioctl(number uint8, arg unsafe.Pointer, size uintptr) error {
	const readWrite = 3
	request := readWrite<<30 | size<<16 | 'F'<<8 | uintptr(number)
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), request, uintptr(arg))
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
	return f.Ioctl(number, unsafe.Pointer(p), unsafe.Sizeof(*p))
}

// pinned calls f with the address of the parameters, which the structure of the call has.
func pinned[T any](p *T, f func(addr uint64, size uint32) error) error {
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(p)
	return f(uint64(uintptr(unsafe.Pointer(p))), uint32(unsafe.Sizeof(*p)))
}
