package serve

import "golang.org/x/sys/unix"

// archCalls are system calls that only this architecture has, of Go's library and of the C library.
var archCalls = []uint32{
	unix.SYS_ARCH_PRCTL, unix.SYS_NEWFSTATAT, unix.SYS_OPEN, unix.SYS_STAT, unix.SYS_LSTAT, unix.SYS_ACCESS, unix.SYS_READLINK, unix.SYS_UNLINK, unix.SYS_POLL, unix.SYS_EPOLL_WAIT,
	unix.SYS_CHMOD, unix.SYS_DUP2, unix.SYS_VFORK, unix.SYS_TIME,
}
