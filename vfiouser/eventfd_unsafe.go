package vfiouser

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// signaller adds to eventfds without ever waiting.
//
// A write to an eventfd waits while its counter is full, unless O_NONBLOCK is set. The client holds
// the same open file description: it fills the counter and clears the flag whenever it likes, and
// eventfds take no RWF_NOWAIT to write. The kernel itself never waits when it signals the end of an
// asynchronous operation to an eventfd. So the signaller reads 0 bytes of an empty file
// asynchronously, which ends inside io_submit.
type signaller struct {
	context uintptr // aio_context_t
	empty   int     // a memfd
}

// signalQueue is how many ended operations the kernel keeps before they must be taken out.
const signalQueue = 128

// signals returns the signaller of this process. It needs no lock and is never closed.
var signals = sync.OnceValues(newSignaller)

func newSignaller() (*signaller, error) {
	s := new(signaller)
	err := s.open()
	if errors.Is(err, unix.EAGAIN) {
		return nil, fmt.Errorf("vfiouser: %w: the machine's asynchronous operations are used up; raise the sysctl fs.aio-max-nr", err)
	}
	if err != nil {
		return nil, fmt.Errorf("vfiouser: %w; interrupts need a kernel with CONFIG_AIO, and a sandbox that permits io_setup, io_submit and io_getevents", err)
	}
	return s, nil
}

// open makes the signaller, and tries it: a sandbox may permit only some of the system calls.
func (s *signaller) open() (err error) {
	if s.empty, err = unix.MemfdCreate("signals", unix.MFD_CLOEXEC); err != nil {
		return os.NewSyscallError("memfd_create", err)
	}
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, signalQueue, uintptr(unsafe.Pointer(&s.context)), 0); errno != 0 {
		return os.NewSyscallError("io_setup", errno)
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return os.NewSyscallError("eventfd", err)
	}
	defer unix.Close(fd)
	if errno := s.submit(fd, new(iocb)); errno != 0 {
		return os.NewSyscallError("io_submit", errno)
	}
	if errno := s.takeEnded(); errno != 0 {
		return os.NewSyscallError("io_getevents", errno)
	}
	if !drain(fd) {
		return errors.New("io_submit signals no eventfd")
	}
	return nil
}

// iocb is the kernel's struct iocb. The fields that are 0 in every operation have no names.
type iocb struct {
	_         uint64
	_         [2]uint32
	_         uint16 // IOCB_CMD_PREAD
	_         int16
	fd        uint32
	_, _      uint64
	_         int64
	_         uint64
	flags     uint32
	eventFD   uint32
	submitted *iocb // the array of one that io_submit takes; not the kernel's
}

const iocbEventFD = 1 // IOCB_FLAG_RESFD

// signal adds 1 to an eventfd and reports whether it could. cb is scratch memory.
func (s *signaller) signal(fd int, cb *iocb) bool {
	for range signalQueue { // others may fill the queue meanwhile
		if errno := s.submit(fd, cb); errno != unix.EAGAIN {
			return errno == 0
		}
		if s.takeEnded() != 0 {
			return false
		}
	}
	return false
}

// submit fails with EAGAIN while the queue of ended operations is full.
func (s *signaller) submit(fd int, cb *iocb) syscall.Errno {
	cb.fd, cb.flags, cb.eventFD, cb.submitted = uint32(s.empty), iocbEventFD, uint32(fd), cb
	_, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, s.context, 1, uintptr(unsafe.Pointer(&cb.submitted)))
	return errno
}

// takeEnded makes room in the queue of ended operations.
func (s *signaller) takeEnded() syscall.Errno {
	var ended [signalQueue][4]uint64 // struct io_event
	_, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, s.context, 0, signalQueue, uintptr(unsafe.Pointer(&ended)), 0, 0)
	return errno
}
