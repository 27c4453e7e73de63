package main

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/sandbox"
)

// Limits of the process. maxData is for what is neither the guest's memory nor reserved for the table of pages.
const (
	maxFiles  = 320
	tableData = 2 << 30
	maxData   = 1 << 30
)

// confine executes the program anew, with no privileges and no files but those of the library. It returns only if that fails.
func confine(library, dir string) error {
	var files sandbox.Files
	for _, name := range append(slices.Clone(jit.SystemFolders), library, dir) {
		if name == "" {
			continue
		}
		if at, err := filepath.EvalSymlinks(name); err == nil {
			name = at
		}
		files.Paths = append(files.Paths, sandbox.Path{Name: name, Use: sandbox.Read})
	}
	return sandbox.Again(files, map[int]uint64{unix.RLIMIT_CORE: 0, unix.RLIMIT_NOFILE: maxFiles, unix.RLIMIT_DATA: tableData + maxData}, jit.CardFD+1)
}

// forbid gives up all system calls that code of a guest could harm with: no file can be opened, and memory is writable or
// executable, not both. The card's memory is all guests': it can only be mapped, in parts to which the server agrees, and
// neither a copy of its descriptor nor another size of such a part can be had.
func forbid() (missing string, listener *os.File, err error) {
	f := sandbox.NewFilter(sandbox.Refuse)
	f.Runtime()
	f.Allow(unix.SYS_BRK, unix.SYS_SETPRIORITY, unix.SYS_GETCPU)
	f.Argument(unix.SYS_SCHED_SETAFFINITY, 0, func(f *sandbox.Filter) { f.Equal(0, sandbox.Allow) }) // of this thread
	f.Except(unix.SYS_READ, 0, jit.CardFD)
	f.Except(unix.SYS_WRITE, 0, jit.CardFD)
	f.Argument(unix.SYS_FCNTL, 1, func(f *sandbox.Filter) {
		f.Masked(^uint32(0), unix.F_GETFD, unix.F_SETFD, unix.F_GETFL, unix.F_SETFL)
	})
	const flags, file = 3, 4                               // arguments of mmap
	const uncounted = unix.MAP_SHARED | unix.MAP_ANONYMOUS // by the limit of memory
	f.Never(unix.SYS_MMAP, flags, uncounted, uncounted)
	f.Ask(unix.SYS_MMAP, file, jit.CardFD)
	f.Argument(unix.SYS_MMAP, 2, func(f *sandbox.Filter) { f.WithoutBits(unix.PROT_EXEC) })
	f.Argument(unix.SYS_MPROTECT, 2, func(f *sandbox.Filter) {
		f.Masked(unix.PROT_WRITE|unix.PROT_EXEC, unix.PROT_NONE, unix.PROT_WRITE, unix.PROT_EXEC)
	})
	missing, fd, err := sandbox.Forbid(f)
	if missing != "" && err == nil {
		return "", nil, errors.New(missing) // the card's memory would be open to the process
	}
	if fd >= 0 {
		listener = os.NewFile(uintptr(fd), "listener")
	}
	return missing, listener, err
}
