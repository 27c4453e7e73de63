package vfiouser

import (
	"fmt"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// userfaults is a userfaultfd of this process. An access to a page that a watched mapping's file does
// not have raises SIGBUS, where it would allocate the page. Nothing waits for a handler: a goroutine
// that did so in a page fault could not be stopped for a garbage collection.
type userfaults struct{ fd int }

// openUserfaults makes the userfaultfd of this process. It needs no lock and is never closed.
var openUserfaults = sync.OnceValues(newUserfaults)

// CheckDMAAlloc says why this system cannot serve Options.MaxDMAAlloc.
func CheckDMAAlloc() error {
	_, err := openUserfaults()
	return err
}

// From linux/userfaultfd.h.
const (
	uffdUserModeOnly = 1
	uffdAPI          = 0xaa
	uffdSIGBUS       = 1 << 7
	uffdMissing      = 1 << 0
	uffdCanZero      = 1 << 4

	uffdioAPI        = 0xc018aa3f
	uffdioRegister   = 0xc020aa00
	uffdioUnregister = 0x8010aa01
	uffdioZeroPage   = 0xc020aa04
)

func newUserfaults() (*userfaults, error) {
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|uffdUserModeOnly, 0, 0)
	if errno == unix.EINVAL { // before Linux 5.11
		fd, _, errno = unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC, 0, 0)
	}
	if errno != 0 {
		return nil, fmt.Errorf("userfaultfd: %w", errno)
	}
	u := &userfaults{int(fd)}
	if errno := u.ioctl(uffdioAPI, &[4]uint64{uffdAPI, uffdSIGBUS}); errno != 0 {
		unix.Close(u.fd)
		return nil, fmt.Errorf("userfaultfd without UFFD_FEATURE_SIGBUS: %w", errno)
	}
	return u, nil
}

// watch makes holes of a mapping of tmpfs raise SIGBUS. It reports false for hugetlbfs, whose pages
// come from a pool that the machine's owner has made.
func (u *userfaults) watch(mem []byte) (bool, error) {
	arg := [4]uint64{address(mem), uint64(len(mem)), uffdMissing}
	if errno := u.ioctl(uffdioRegister, &arg); errno != 0 {
		return false, errno
	}
	if arg[3]&uffdCanZero != 0 {
		return true, nil
	}
	return false, u.unwatch(mem)
}

// unwatch ends watch.
func (u *userfaults) unwatch(mem []byte) error {
	if errno := u.ioctl(uffdioUnregister, &[4]uint64{address(mem), uint64(len(mem))}); errno != 0 {
		return errno
	}
	return nil
}

// allocate fills pages with zeros up to the first that exists, and returns how many bytes it has
// filled. EEXIST if the first exists.
func (u *userfaults) allocate(pages []byte) (uint64, unix.Errno) {
	arg := [4]uint64{address(pages), uint64(len(pages))}
	errno := u.ioctl(uffdioZeroPage, &arg)
	filled := int64(arg[3]) // or an errno, negative
	if filled > 0 {
		return uint64(filled), 0
	}
	return 0, errno
}

func (u *userfaults) ioctl(request uintptr, arg *[4]uint64) unix.Errno {
	for {
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(u.fd), request, uintptr(unsafe.Pointer(arg)))
		if errno != unix.EINTR {
			return errno
		}
	}
}

func address(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&mem[0]))) }
