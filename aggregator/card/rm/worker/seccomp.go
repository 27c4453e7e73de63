package worker

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
	"github.com/umbra-gpu/umbra/sandbox"
)

// allowedCalls are the system calls of Go's runtime, of files and of the connection. Others are in newFilter.
var allowedCalls = []uint32{
	unix.SYS_READ, unix.SYS_WRITE, unix.SYS_CLOSE, unix.SYS_OPENAT, unix.SYS_FSTAT, unix.SYS_FCNTL, unix.SYS_SENDMSG, unix.SYS_RECVMSG,
	unix.SYS_PPOLL, unix.SYS_EPOLL_CREATE1, unix.SYS_EPOLL_CTL, unix.SYS_EPOLL_PWAIT, unix.SYS_EVENTFD2,
	unix.SYS_MUNMAP, unix.SYS_MADVISE, unix.SYS_FUTEX, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL,
	unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETRANDOM,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_RSEQ, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
}

// newFilter allows what the process needs, and some calls more.
func newFilter(more []uint32) *sandbox.Filter {
	f := sandbox.NewFilter(sandbox.Refuse)
	f.Argument(unix.SYS_IOCTL, 1, func(f *sandbox.Filter) {
		f.And(0xffff) // without direction and size
		for _, e := range nvrm.Escapes {
			f.Equal('F'<<8|uint32(e), sandbox.Allow)
		}
	})
	f.Allow(allowedCalls...)
	f.Allow(more...)
	for _, number := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		f.Argument(number, 2, func(f *sandbox.Filter) {
			f.Bits(unix.PROT_EXEC, sandbox.Refuse)
			f.Answer(sandbox.Allow)
		})
	}
	f.Argument(unix.SYS_CLONE, 0, func(f *sandbox.Filter) { f.Bits(unix.CLONE_THREAD, sandbox.Allow) })
	f.Argument(unix.SYS_TGKILL, 0, func(f *sandbox.Filter) { f.Equal(uint32(os.Getpid()), sandbox.Allow) })
	f.Equal(unix.SYS_CLONE3, sandbox.Lacks) // the C library tries clone then
	return f
}
