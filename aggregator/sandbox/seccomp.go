package sandbox

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// allowedCalls are the system calls of Go's runtime and of a connection.
var allowedCalls = []uint32{
	unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_SENDMSG, unix.SYS_RECVMSG,
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

// Filter is a program for seccomp.
type Filter []unix.SockFilter

func (f *Filter) add(code uint16, k uint32, yes, no uint8) {
	*f = append(*f, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

func (f *Filter) load(at uint32)    { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at, 0, 0) }
func (f *Filter) answer(how uint32) { f.add(unix.BPF_RET|unix.BPF_K, how, 0, 0) }

// equal answers if the loaded number is k, and bits if it has one of these.
func (f *Filter) equal(k, how uint32) {
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, 0, 1)
	f.answer(how)
}

func (f *Filter) bits(k, how uint32) {
	f.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, k, 0, 1)
	f.answer(how)
}

// Argument continues with the part for one system call, which loads an argument and ends with a refusal.
func (f *Filter) Argument(number, arg uint32, part func(f *Filter)) {
	var sub Filter
	sub.load(dataArg + 8*arg)
	part(&sub)
	sub.answer(refuse)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, number, 0, uint8(len(sub)))
	*f = append(*f, sub...)
}

// Except allows a call unless an argument has a value.
func (f *Filter) Except(number, arg, value uint32) {
	f.Argument(number, arg, func(f *Filter) {
		f.equal(value, refuse)
		f.answer(allow)
	})
}

// Ask lets whoever has the listener of [Forbid] judge calls that have a value as an argument. What follows is for others.
func (f *Filter) Ask(number, arg, value uint32) {
	const rest = 4 // instructions
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, number, 0, rest)
	f.load(dataArg + 8*arg)
	f.equal(value, unix.SECCOMP_RET_USER_NOTIF)
	f.load(dataNumber)
}

// Equal allows a call whose argument is k, or WithoutBits one whose argument has none of bits, or Masked one whose
// argument is one of some values in the bits of mask.
func (f *Filter) Equal(k uint32) { f.equal(k, allow) }

func (f *Filter) WithoutBits(bits uint32) {
	f.bits(bits, refuse)
	f.answer(allow)
}

func (f *Filter) Masked(mask uint32, values ...uint32) {
	f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0)
	for _, v := range values {
		f.equal(v, allow)
	}
}

const (
	allow  = unix.SECCOMP_RET_ALLOW
	refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
)

// NewFilter allows what Go's runtime needs, but to read and write files, and memory: no other process. More system calls
// follow by its methods. The first rule for a call counts; Forbid refuses all others.
func NewFilter() *Filter {
	f := new(Filter)
	f.load(dataArch)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch[runtime.GOARCH], 1, 0)
	f.answer(unix.SECCOMP_RET_KILL_PROCESS)
	f.load(dataNumber)
	f.Allow(allowedCalls...)
	f.Argument(unix.SYS_CLONE, 0, func(f *Filter) { f.bits(unix.CLONE_THREAD, allow) })
	f.Argument(unix.SYS_TGKILL, 0, func(f *Filter) { f.Equal(uint32(os.Getpid())) })
	f.equal(unix.SYS_CLONE3, unix.SECCOMP_RET_ERRNO|uint32(unix.ENOSYS)) // the C library tries clone then
	return f
}

// Allow allows system calls.
func (f *Filter) Allow(numbers ...uint32) {
	for _, n := range numbers {
		f.equal(n, allow)
	}
}

// NotExecutable allows mmap and mprotect of memory that is not executable.
func (f *Filter) NotExecutable() {
	for _, number := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		f.Argument(number, 2, func(f *Filter) { f.WithoutBits(unix.PROT_EXEC) })
	}
}
