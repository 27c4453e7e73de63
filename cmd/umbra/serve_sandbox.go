package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/serve"
)

// confinedEnv says that this process is the second step of a server: landlock already binds it. Its value is what the kernel
// lacked.
const confinedEnv = "UMBRA_CONFINED"

// A sandboxed server starts in two steps, for landlock binds one thread and what that thread executes. The first step finds
// what is wrong and which files the server needs, gives up all others, and executes the program anew with the environment
// and the descriptors that it found. The second step forbids system calls before it serves anybody.
type steps struct {
	env     []string // of the first step, as its parent made it
	second  bool
	missing []string // what the kernel lacks
	free    bool     // it lacks landlock
}

// newSteps looks which step this is, before anything of the environment is used up.
func newSteps() *steps {
	missing, second := os.LookupEnv(confinedEnv)
	os.Unsetenv(confinedEnv)
	s := &steps{env: os.Environ(), second: second}
	if missing != "" {
		s.missing, s.free = []string{missing}, true
	}
	return s
}

// keepInput makes standard input a file that the second step can read, too.
func (s *steps) keepInput() error {
	if s.second {
		return nil
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "stdin")
	defer f.Close()
	const most = 4 << 20 // more than a configuration may have
	if _, err = io.CopyN(f, os.Stdin, most); err != nil && err != io.EOF {
		return fmt.Errorf("standard input: %w", err)
	}
	if _, err = f.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return unix.Dup3(fd, 0, 0)
}

// again is the end of the first step. It returns only if it fails.
func (s *steps) again(plan *serve.Plan, file string, from serve.Sockets) error {
	if file == "-" {
		file = ""
		if _, err := unix.Seek(0, 0, io.SeekStart); err != nil {
			return fmt.Errorf("standard input: %w", err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	missing, err := plan.Confine(file)
	if err != nil {
		return err
	}
	if err := from.Keep(); err != nil {
		return err
	}
	return fmt.Errorf("execve %s: %w", self, unix.Exec(self, os.Args, append(s.env, confinedEnv+"="+missing)))
}

// filter is the second step.
func (s *steps) filter(plan *serve.Plan, log *slog.Logger) error {
	missing, err := plan.Filter()
	if missing != "" {
		s.missing = append(s.missing, missing)
	}
	for _, m := range s.missing {
		log.Warn("the server is less confined: " + m)
	}
	return err
}
