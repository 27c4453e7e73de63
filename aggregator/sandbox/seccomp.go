package sandbox

import (
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// runtimeCalls are the system calls of Go's runtime and of a connection.
var runtimeCalls = []uint32{
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

// Filter is a program for seccomp, which the kernel asks before each system call. The first rule for a call counts.
type Filter struct {
	program []unix.SockFilter
	refuse  uint32
}

// What a Filter answers.
const (
	Allow  = unix.SECCOMP_RET_ALLOW
	Refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
	// Log allows the call, and writes it to the kernel's log.
	Log = unix.SECCOMP_RET_LOG
	// Lacks says that the kernel lacks the call, so that libraries use another one.
	Lacks = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
)

// NewFilter begins a filter, which answers refuse to what nothing else answers. It kills what makes calls of another architecture.
func NewFilter(refuse uint32) *Filter {
	f := &Filter{refuse: refuse}
	f.load(dataArch)
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, auditArch[runtime.GOARCH], 1, 0)
	f.Answer(unix.SECCOMP_RET_KILL_PROCESS)
	f.load(dataNumber)
	return f
}

func (f *Filter) add(code uint16, k uint32, yes, no uint8) {
	f.program = append(f.program, unix.SockFilter{Code: code, Jt: yes, Jf: no, K: k})
}

func (f *Filter) load(at uint32) { f.add(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, at, 0, 0) }

// Answer answers always.
func (f *Filter) Answer(how uint32) { f.add(unix.BPF_RET|unix.BPF_K, how, 0, 0) }

// Equal answers if the loaded number, at first that of the system call, is k.
func (f *Filter) Equal(k, how uint32) {
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, k, 0, 1)
	f.Answer(how)
}

// Bits answers if the loaded number has one of these.
func (f *Filter) Bits(k, how uint32) {
	f.add(unix.BPF_JMP|unix.BPF_JSET|unix.BPF_K, k, 0, 1)
	f.Answer(how)
}

// Argument continues with the part for one system call, which judges an argument's lower 32 bits and ends with a refusal.
func (f *Filter) Argument(number, arg uint32, part func(f *Filter)) {
	sub := &Filter{refuse: f.refuse}
	sub.load(dataArg + 8*arg)
	part(sub)
	sub.Answer(f.refuse)
	if len(sub.program) > math.MaxUint8 {
		panic("sandbox: a part of a filter is longer than a jump")
	}
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, number, 0, uint8(len(sub.program)))
	f.program = append(f.program, sub.program...)
}

// Except allows a call unless an argument has a value.
func (f *Filter) Except(number, arg, value uint32) {
	f.Argument(number, arg, func(f *Filter) {
		f.Equal(value, f.refuse)
		f.Answer(Allow)
	})
}

// Ask lets whoever has the listener of [Forbid] judge calls that have a value as an argument. What follows is for others.
func (f *Filter) Ask(number, arg, value uint32) {
	const rest = 4 // instructions
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, number, 0, rest)
	f.load(dataArg + 8*arg)
	f.Equal(value, unix.SECCOMP_RET_USER_NOTIF)
	f.load(dataNumber)
}

// Never refuses calls that have a value in the bits of a mask of an argument. What follows is for others.
func (f *Filter) Never(number, arg, mask, value uint32) {
	const rest = 5 // instructions
	f.add(unix.BPF_JMP|unix.BPF_JEQ|unix.BPF_K, number, 0, rest)
	f.load(dataArg + 8*arg)
	f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0)
	f.Equal(value, f.refuse)
	f.load(dataNumber)
}

// WithoutBits allows a call whose argument has none of bits, and Masked one whose argument is one of some values in the
// bits of mask.
func (f *Filter) WithoutBits(bits uint32) {
	f.Bits(bits, f.refuse)
	f.Answer(Allow)
}

func (f *Filter) Masked(mask uint32, values ...uint32) {
	f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, mask, 0, 0)
	for _, v := range values {
		f.Equal(v, Allow)
	}
}

// Runtime allows what Go's runtime needs, but to read and write files, and memory: no other process.
func (f *Filter) Runtime() {
	f.Allow(runtimeCalls...)
	f.Argument(unix.SYS_CLONE, 0, func(f *Filter) { f.Bits(unix.CLONE_THREAD, Allow) })
	f.Argument(unix.SYS_TGKILL, 0, func(f *Filter) { f.Equal(uint32(os.Getpid()), Allow) })
	f.Equal(unix.SYS_CLONE3, Lacks) // the C library tries clone then
}

// Allow allows system calls.
func (f *Filter) Allow(numbers ...uint32) {
	for _, n := range numbers {
		f.Equal(n, Allow)
	}
}

// Install makes the kernel judge all system calls of all threads by the filter. It returns what the kernel lacks, and the
// listener for [Serve], -1 if there is none.
func (f *Filter) Install() (missing string, listener int, err error) {
	f.Answer(f.refuse)
	listener, err = install(f.program)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return fmt.Sprintf("the kernel has no seccomp filters (%v), which restrict its system calls", err), -1, nil
	}
	return "", listener, err
}

// NotExecutable allows mmap and mprotect of memory that is not executable.
func (f *Filter) NotExecutable() {
	for _, number := range []uint32{unix.SYS_MMAP, unix.SYS_MPROTECT} {
		f.Argument(number, 2, func(f *Filter) { f.WithoutBits(unix.PROT_EXEC) })
	}
}
