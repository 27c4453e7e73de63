package serve

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/worker"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/sandbox"
	"github.com/umbra-gpu/umbra/cmd/config"
)

// Values of the option server.sandbox.
const (
	SandboxOff = "off"
	SandboxOn  = "on"
	SandboxLog = "log"
)

// systemFiles are read by Go's runtime and library: the machine's size and limits, the local time, names of users and hosts.
// The loader of the processes that the server starts reads ld.so.cache.
var systemFiles = []string{
	"/sys/fs/cgroup", "/sys/kernel/mm/transparent_hugepage", "/sys/devices/system/cpu",
	"/etc/localtime", "/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.cache", "/dev/urandom",
}

// Confine keeps the goroutine on its thread, and forbids that thread, and what it executes, all files that the server does
// not need: execute the program anew. The file is the configuration's, "" without one. It returns what the kernel lacks.
func (p *Plan) Confine(file string) (missing string, err error) {
	files := sandbox.Files{
		Paths:           []sandbox.Path{{Name: "/dev/null", Use: sandbox.Device}},
		AbstractSockets: strings.HasPrefix(os.Getenv("NOTIFY_SOCKET"), "@"),
	}
	add := func(use uint64, names ...string) {
		for _, name := range names {
			files.Paths = append(files.Paths, sandbox.Path{Name: name, Use: use})
		}
	}
	add(sandbox.Read, systemFiles...)
	if file != "" { // editors replace a file: its folder stays
		add(sandbox.Read, filepath.Dir(file))
		if target, err := filepath.EvalSymlinks(file); err == nil {
			add(sandbox.Read, filepath.Dir(target))
		}
	}
	folders, err := p.Folders()
	if err != nil {
		return "", err
	}
	add(sandbox.Sockets|sandbox.Read, folders...)
	execute, read, err := p.programs()
	if err != nil {
		return "", err
	}
	add(sandbox.Program, execute...)
	add(sandbox.Read, read...)
	add(sandbox.Read, "/proc") // processes that the server starts read what they have mapped
	if p.nvidia != nil {
		files.Paths = append(files.Paths, worker.CardFiles(p.config.Card.Index)...)
	}
	if _, port, err := net.SplitHostPort(string(p.config.Metrics)); err == nil {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil {
			return "", &config.Error{Where: p.config.Where("metrics"), Value: string(p.config.Metrics), Reason: "its port is not a number, which the sandbox needs"}
		}
		files.Ports = []uint16{uint16(n)}
	}
	runtime.LockOSThread() // for good
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "", fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	return files.Restrict()
}

// loaders start programs that are linked with the C library.
var loaders = []string{"/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1"}

// programs are the files that may be executed or mapped: this one, and the compiler, with what these are linked with.
func (p *Plan) programs() (execute, read []string, err error) {
	self, err := os.Executable()
	libraries, mappedErr := sandbox.Libraries()
	compiler, compilerErr := compilerOf(p.config, slog.New(slog.DiscardHandler))
	execute = append(libraries, self)
	if compiler != nil {
		execute = append(append(execute, compiler.Program), loaders...)
		read = slices.DeleteFunc(append(slices.Clone(jit.SystemFolders), compiler.LLVM, compiler.Dependencies), func(name string) bool { return name == "" })
	}
	return execute, read, errors.Join(err, mappedErr, compilerErr)
}

// Folders are where sockets may be made and ROM files read.
func (p *Plan) Folders() (out []string, err error) {
	c := p.config
	for _, s := range c.Sockets(c.GPUs) {
		if c.Inherited[s.Name] == "" {
			out = append(out, filepath.Dir(*s.Path))
		}
	}
	roms := []string{c.Card.ROM}
	for i := range c.GPUs {
		roms = append(roms, c.GPUs[i].ROM)
	}
	for _, name := range roms {
		if name == "" {
			continue
		}
		out = append(out, filepath.Dir(name))
		if target, err := filepath.EvalSymlinks(name); err == nil {
			out = append(out, filepath.Dir(target))
		}
	}
	if list := c.Server.SandboxFolders; list != "" {
		for name := range strings.SplitSeq(list, ",") {
			if st, err := os.Stat(name); err != nil || !st.IsDir() {
				return nil, &config.Error{Where: c.Where("server.sandbox-folders"), Value: name, Reason: "not a folder; make it, or leave it out"}
			}
			out = append(out, name)
		}
	}
	for i, name := range out {
		if out[i], err = real(name); err != nil {
			return nil, err
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// real is the absolute path of a folder, without links.
func real(name string) (string, error) {
	name, err := filepath.Abs(name)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(name)
}

// Filter allows this process only the system calls that the server needs, or has the kernel log the others. TCP sockets
// must be open. It returns what the kernel lacks.
func (p *Plan) Filter() (missing string, err error) {
	refuse, lacks := uint32(sandbox.Refuse), uint32(sandbox.Lacks)
	if p.config.Server.Sandbox == SandboxLog {
		refuse, lacks = sandbox.Log, sandbox.Log
	}
	runtime.LockOSThread() // the flag is the thread's, until the filter gives it to all
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return "", fmt.Errorf("PR_SET_NO_NEW_PRIVS: %w", err)
	}
	f := sandbox.NewFilter(refuse)
	f.Allow(serverCalls...)
	f.Allow(archCalls...)
	f.Argument(unix.SYS_SOCKET, 0, func(f *sandbox.Filter) { f.Equal(unix.AF_UNIX, sandbox.Allow) })
	f.Argument(unix.SYS_SOCKETPAIR, 0, func(f *sandbox.Filter) { f.Equal(unix.AF_UNIX, sandbox.Allow) })
	f.Argument(unix.SYS_IOCTL, 1, func(f *sandbox.Filter) {
		f.Masked(0xff00, 0xaa00, 'F'<<8, '!'<<8) // the kind: of userfaultfd, of the NVIDIA driver, of seccomp's listeners
	})
	f.Argument(unix.SYS_SCHED_SETAFFINITY, 0, func(f *sandbox.Filter) { f.Equal(0, sandbox.Allow) }) // umbra-jit moves its threads
	f.Argument(unix.SYS_CLONE, 0, func(f *sandbox.Filter) {
		f.Bits(unix.CLONE_NEWUSER|unix.CLONE_NEWNS|unix.CLONE_NEWNET|unix.CLONE_NEWPID|unix.CLONE_NEWIPC|unix.CLONE_NEWUTS|unix.CLONE_NEWCGROUP, refuse)
		f.Answer(sandbox.Allow)
	})
	f.Equal(unix.SYS_CLONE3, lacks) // a filter cannot see its flags; libraries try clone then
	missing, _, err = f.Install()
	return missing, err
}

// serverCalls are the system calls of the server, and of the processes that it starts until they confine themselves.
var serverCalls = []uint32{
	// A trap, and what the card does.
	unix.SYS_RECVMSG, unix.SYS_SENDMSG, unix.SYS_WRITE, unix.SYS_READ, unix.SYS_FUTEX, unix.SYS_PPOLL, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_CTL,
	unix.SYS_SENDTO, unix.SYS_RECVFROM, unix.SYS_WRITEV, unix.SYS_READV, unix.SYS_IO_SUBMIT, unix.SYS_IO_GETEVENTS, unix.SYS_IO_SETUP, unix.SYS_IO_DESTROY,
	unix.SYS_MMAP, unix.SYS_MUNMAP, unix.SYS_MPROTECT, unix.SYS_MADVISE, unix.SYS_MREMAP, unix.SYS_MINCORE, unix.SYS_BRK, unix.SYS_MEMFD_CREATE, unix.SYS_FTRUNCATE, unix.SYS_FALLOCATE,
	unix.SYS_USERFAULTFD, unix.SYS_EVENTFD2, unix.SYS_EPOLL_CREATE1, unix.SYS_PREADV2, unix.SYS_PREAD64, unix.SYS_PWRITE64, unix.SYS_LSEEK,
	// Go's runtime.
	unix.SYS_CLOCK_GETTIME, unix.SYS_GETTIMEOFDAY, unix.SYS_NANOSLEEP, unix.SYS_CLOCK_NANOSLEEP, unix.SYS_SCHED_YIELD, unix.SYS_SCHED_GETAFFINITY, unix.SYS_GETCPU,
	unix.SYS_RT_SIGACTION, unix.SYS_RT_SIGPROCMASK, unix.SYS_RT_SIGRETURN, unix.SYS_RT_SIGTIMEDWAIT, unix.SYS_SIGALTSTACK, unix.SYS_RESTART_SYSCALL, unix.SYS_TGKILL, unix.SYS_TKILL, unix.SYS_KILL,
	unix.SYS_GETPID, unix.SYS_GETPPID, unix.SYS_GETTID, unix.SYS_GETUID, unix.SYS_GETEUID, unix.SYS_GETGID, unix.SYS_GETEGID, unix.SYS_GETRANDOM, unix.SYS_UNAME, unix.SYS_SYSINFO,
	unix.SYS_TIMER_CREATE, unix.SYS_TIMER_SETTIME, unix.SYS_TIMER_DELETE, unix.SYS_SETITIMER,
	unix.SYS_SET_ROBUST_LIST, unix.SYS_SET_TID_ADDRESS, unix.SYS_RSEQ, unix.SYS_MEMBARRIER, unix.SYS_EXIT, unix.SYS_EXIT_GROUP,
	// Sockets and files.
	unix.SYS_OPENAT, unix.SYS_CLOSE, unix.SYS_FSTAT, unix.SYS_STATX, unix.SYS_FSTATFS, unix.SYS_STATFS, unix.SYS_FCNTL, unix.SYS_DUP, unix.SYS_DUP3, unix.SYS_PIPE2,
	unix.SYS_READLINKAT, unix.SYS_FACCESSAT, unix.SYS_FACCESSAT2, unix.SYS_GETCWD, unix.SYS_GETDENTS64, unix.SYS_UNLINKAT, unix.SYS_FCHMOD, unix.SYS_FCHMODAT, unix.SYS_FCHOWN, unix.SYS_FCHOWNAT,
	unix.SYS_BIND, unix.SYS_LISTEN, unix.SYS_ACCEPT, unix.SYS_ACCEPT4, unix.SYS_CONNECT, unix.SYS_SHUTDOWN, unix.SYS_GETSOCKNAME, unix.SYS_GETPEERNAME, unix.SYS_GETSOCKOPT, unix.SYS_SETSOCKOPT,
	// Processes of the server, which landlock allows for few programs.
	unix.SYS_EXECVE, unix.SYS_WAITID, unix.SYS_WAIT4, unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_SETPGID, unix.SYS_CHDIR, unix.SYS_CLOSE_RANGE, unix.SYS_UMASK,
	unix.SYS_SETPRIORITY, unix.SYS_SETUID, unix.SYS_SETGID, unix.SYS_SETGROUPS, unix.SYS_GETRLIMIT, unix.SYS_SETRLIMIT, unix.SYS_PRLIMIT64,
	unix.SYS_PRCTL, unix.SYS_CAPGET, unix.SYS_CAPSET, unix.SYS_SECCOMP, unix.SYS_LANDLOCK_CREATE_RULESET, unix.SYS_LANDLOCK_ADD_RULE, unix.SYS_LANDLOCK_RESTRICT_SELF,
}

// permitted says whether the sandbox lets a file that is named now lie where it does.
func (s *Server) permitted(where, path string) error {
	if s.Confined == nil || path == "" {
		return nil
	}
	folder, err := real(filepath.Dir(path))
	if target, linked := filepath.EvalSymlinks(path); linked == nil { // the kernel judges where a link leads
		folder, err = real(filepath.Dir(target))
	}
	if err != nil {
		return &config.Error{Where: where, Value: path, Reason: err.Error()}
	}
	for _, f := range s.Confined {
		if rel, err := filepath.Rel(f, folder); err == nil && filepath.IsLocal(rel) {
			return nil
		}
	}
	allowed := "none"
	if len(s.Confined) > 0 {
		allowed = strings.Join(s.Confined, ", ")
	}
	return &config.Error{Where: where, Value: path, Reason: fmt.Sprintf("the server's sandbox keeps it out of folder %s; choose one of those that it was started with (%s), or start it with --sandbox-folders %s or --sandbox off", folder, allowed, folder)}
}
