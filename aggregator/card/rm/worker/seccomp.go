package worker

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
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

// auditArch are the kernel's numbers of the architectures, from linux/audit.h.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Places in struct seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg    = 16 // 8 bytes each, the low half first
)

// filter is a program for seccomp.
type filter []unix.SockFilter

func (f *filter) add(code uint16, k uint32, yes, no uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

func (f *filter) load(at uint32)    { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at, 0, 0) }
func (f *filter) answer(how uint32) { f.add(unix.BPF_RET|unix.BPF_K, how, 0, 0) }

// equal answers if the loaded number is k, and bits if it has one of these.
func (f *filter) equal(k, how uint32) {
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, 0, 1)
	f.answer(how)
}

func (f *filter) bits(k, how uint32) {
	f.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, k, 0, 1)
	f.answer(how)
}

// argument continues with the part for one system call, which loads an argument and ends with a refusal.
func (f *filter) argument(number, arg uint32, part func(f *filter)) {
	var sub filter
	sub.load(dataArg + 8*arg)
	part(&sub)
	sub.answer(refuse)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, number, 0, uint8(len(sub)))
	*f = append(*f, sub...)
}

const (
	allow  = unix.SECCOMP_RET_ALLOW
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// newFilter allows what the process needs, and some calls more.
func newFilter(more []uint32) (f filter) {
	f.load(dataArch)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch[runtime.GOARCH], 1, 0)
	f.answer(unix.SECCOMP_RET_KILL_PROCESS)
	f.load(dataNumber)
	f.argument(unix.SYS_IOCTL, 1, func(f *filter) {
		f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, 0xffff, 0, 0) // without direction and size
		for _, e := range nvrm.Escapes {
			f.equal('F'<<8|uint32(e), allow)
		}
	})
	for _, number := range append(allowedCalls[:len(allowedCalls):len(allowedCalls)], more...) {
		f.equal(number, allow)
	}
	for _, number := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		f.argument(number, 2, func(f *filter) {
			f.bits(unix.PROT_EXEC, refuse)
			f.answer(allow)
		})
	}
	f.argument(unix.SYS_CLONE, 0, func(f *filter) { f.bits(unix.CLONE_THREAD, allow) })
	f.argument(unix.SYS_TGKILL, 0, func(f *filter) { f.equal(uint32(os.Getpid()), allow) })
	f.equal(unix.SYS_CLONE3, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)) // the C library tries clone then
	f.answer(refuse)
	return f
}
