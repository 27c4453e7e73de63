package drm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Device is one open DRM node of nouveau.
type Device struct {
	f *os.File
}

// DefaultNode returns the first render node, or else the first card node.
func DefaultNode() (string, error) {
	for _, pattern := range []string{"/dev/dri/renderD*", "/dev/dri/card*"} {
		nodes, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		if len(nodes) > 0 {
			return nodes[0], nil
		}
	}
	return "", errors.New("no DRM node in /dev/dri: is nouveau loaded and has it probed a card?")
}

// Open opens a node and refuses one that is not nouveau's.
func Open(path string) (*Device, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	d := &Device{f: f}
	name, err := d.Driver()
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if name != "nouveau" {
		f.Close()
		return nil, fmt.Errorf("%s: driver %q, want nouveau", path, name)
	}
	return d, nil
}

// Close ends the client: the kernel frees its channels and buffers.
func (d *Device) Close() error { return d.f.Close() }

// Driver asks for the driver's name.
func (d *Device) Driver() (string, error) {
	name := make([]byte, 64)
	var pin runtime.Pinner
	defer pin.Unpin()
	pin.Pin(&name[0])
	v := &drmVersion{NameLen: uint64(len(name)), Name: addr(&name[0])}
	if err := ioctl(d.f, "VERSION", ioctlVersion, unsafe.Pointer(v)); err != nil {
		return "", err
	}
	return string(name[:min(v.NameLen, uint64(len(name)))]), nil
}

// Chipset asks for nouveau's number of the chip.
func (d *Device) Chipset() (uint64, error) {
	const chipset = 11
	p := &getParam{Param: chipset}
	err := ioctl(d.f, "GETPARAM", ioctlGetParam, unsafe.Pointer(p))
	return p.Value, err
}

// Error is a failed ioctl. Unwrap gives the errno.
type Error struct {
	Op    string
	Errno unix.Errno
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (errno %d)", e.Op, e.Errno, int(e.Errno)) }

// Unwrap returns the errno, for errors.Is.
func (e *Error) Unwrap() error { return e.Errno }

// ioctl repeats what a signal interrupted, as every DRM client must: the Go
// runtime sends itself signals to preempt.
func ioctl(f *os.File, op string, req uintptr, arg unsafe.Pointer) error {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), req, uintptr(arg))
		switch errno {
		case 0:
			return nil
		case unix.EINTR, unix.EAGAIN:
			continue
		}
		return &Error{Op: op, Errno: errno}
	}
}

// addr is the address of something that the caller has pinned.
func addr[T any](p *T) uint64 { return uint64(uintptr(unsafe.Pointer(p))) }
