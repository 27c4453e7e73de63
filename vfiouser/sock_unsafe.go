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

// send writes all of p, waiting as long as the client does not read.
func (s *sock) send(p []byte) error {
	for len(p) > 0 {
		n, errno := s.sendOnce(p, 0)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 {
			return errno
		}
		p = p[n:]
	}
	return nil
}

func (s *sock) sendOnce(p []byte, flags int) (int, unix.Errno) {
	r, _, errno := unix.Syscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)), uintptr(flags|unix.MSG_NOSIGNAL), 0, 0)
	return int(r), errno
}

// sendUntil writes all of p by a deadline and returns how much of it got out.
func (s *sock) sendUntil(p []byte, deadline time.Time) (sent int, err error) {
	for sent < len(p) {
		n, errno := s.sendOnce(p[sent:], unix.MSG_DONTWAIT)
		switch errno {
		case 0:
			sent += n
		case unix.EINTR:
		case unix.EAGAIN:
			left := time.Until(deadline)
			if left <= 0 {
				return sent, ErrDMATimeout
			}
			pfd := [1]unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
			if _, err := unix.Poll(pfd[:], int(left/time.Millisecond)+1); err != nil && !errors.Is(err, unix.EINTR) {
				return sent, err
			}
		default:
			return sent, errno
		}
	}
	return sent, nil
}

func (s *sock) sendFDs(p []byte, fds []int) error {
	rights := unix.UnixRights(fds...)
	for {
		n, err := unix.SendmsgN(s.fd, p, rights, nil, unix.MSG_NOSIGNAL)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return err
		}
		return s.send(p[n:])
	}
}
