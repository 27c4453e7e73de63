package sandbox

import (
	"errors"
	"fmt"
	"math"
	"runtime"

	"golang.org/x/sys/unix"
)

// auditArch are the kernel's numbers of the architectures, from linux/audit.h.
var auditArch = map[string]uint32{"amd64": unix.AUDIT_ARCH_X86_64, "arm64": unix.AUDIT_ARCH_AARCH64}

// Places in struct seccomp_data.
const (
	dataNumber = 0
	dataArch   = 4
	dataArg    = 16 // 8 bytes each, the low half first
)

// Filter is a program for seccomp, which the kernel asks before each system call.
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

// Allow allows system calls.
func (f *Filter) Allow(calls ...uint32) {
	for _, number := range calls {
		f.Equal(number, Allow)
	}
}

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

// And keeps these bits of the loaded number.
func (f *Filter) And(k uint32) { f.add(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, k, 0, 0) }

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

// Install makes the kernel judge all system calls of all threads by the filter. It returns what the kernel lacks.
func (f *Filter) Install() (missing string, err error) {
	f.Answer(f.refuse)
	err = install(f.program)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
		return fmt.Sprintf("the kernel has no seccomp filters (%v), which restrict its system calls", err), nil
	}
	return "", err
}
