package vfiouser

import (
	"errors"
	"io"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// maxSCMFDs is how many descriptors one control message can carry (Linux SCM_MAX_FD).
const maxSCMFDs = 253

// sock is a connected stream socket in blocking mode, driven by raw system calls so that a
// message costs no allocation. recv belongs to one goroutine.
type sock struct {
	fd  int
	hdr unix.Msghdr
	iov unix.Iovec
	oob [maxOOB]byte
}

const maxOOB = unix.SizeofCmsghdr + maxSCMFDs*4 + 4

// recv reads into p and returns the descriptors that came along, or io.EOF. truncated means
// that some descriptors were lost.
func (s *sock) recv(p []byte, flags int) (n int, fds []int, truncated bool, err error) {
	s.iov.Base = &p[0]
	s.iov.SetLen(len(p))
	s.hdr.Iov = &s.iov
	s.hdr.SetIovlen(1)
	for {
		s.hdr.Control = &s.oob[0]
		s.hdr.SetControllen(len(s.oob))
		r, _, errno := unix.Syscall(unix.SYS_RECVMSG, uintptr(s.fd), uintptr(unsafe.Pointer(&s.hdr)), uintptr(flags|unix.MSG_CMSG_CLOEXEC))
		switch {
		case errno == unix.EINTR:
			continue
		case errno != 0:
			return 0, nil, false, errno
		}
		n = int(r)
		break
	}
	if s.hdr.Controllen > 0 {
		fds = parseRights(s.oob[:s.hdr.Controllen])
	}
	if n == 0 && len(fds) == 0 {
		return 0, nil, false, io.EOF
	}
	return n, fds, s.hdr.Flags&unix.MSG_CTRUNC != 0, nil
}

func parseRights(oob []byte) (fds []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		got, err := unix.ParseUnixRights(&msgs[i])
		if err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

// send writes all of p by a deadline or, without one, however long the client does not read. It
// returns how much got out.
func (s *sock) send(p []byte, deadline time.Time) (sent int, err error) {
	for sent < len(p) {
		rest := p[sent:]
		n, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&rest[0])), uintptr(len(rest)), unix.MSG_NOSIGNAL|unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			sent += int(n)
		case unix.EINTR:
		case unix.EAGAIN:
			timeout := -1
			if !deadline.IsZero() {
				left := time.Until(deadline)
				if left <= 0 {
					return sent, ErrDMATimeout
				}
				timeout = int(left/time.Millisecond) + 1
			}
			pfd := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
			if _, err := unix.Poll(pfd[:], timeout); err != nil && !errors.Is(err, unix.EINTR) {
				return sent, err
			}
		default:
			return sent, errno
		}
	}
	return sent, nil
}

// sendFD sends the beginning of p with a descriptor, and returns how much got out.
func (s *sock) sendFD(p []byte, fd int) (sent int, err error) {
	rights := unix.UnixRights(fd)
	for err = unix.EINTR; err == unix.EINTR; {
		sent, err = unix.SendmsgN(s.fd, p, rights, nil, unix.MSG_NOSIGNAL)
	}
	return sent, err
}
