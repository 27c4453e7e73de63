package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/tests/lab/proto"
)

// Modprobe loads a module after those it depends on, in the order of modules.dep, and
// times each.
func (s *System) Modprobe(a proto.ModprobeArgs) (res proto.ModprobeResult, err error) {
	res.Loaded = []proto.LoadedModule{}
	dir := filepath.Join("lib/modules", s.Release)
	deps, err := os.ReadFile(s.path(dir + "/modules.dep"))
	if err != nil {
		return res, err
	}
	files, err := closure(string(deps), a.Name)
	if err != nil {
		return res, err
	}
	cmdline, err := s.read("proc/cmdline")
	if err != nil {
		return res, err
	}
	start := time.Now()
	for i, f := range files {
		options := commandLineOptions(cmdline, moduleName(f))
		if i == len(files)-1 {
			options = append(options, a.Options...)
		}
		at := time.Now()
		err := insert(s.path(filepath.Join(dir, f)), strings.Join(options, " "))
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return res, fmt.Errorf("%s: %w", f, err)
		}
		res.Loaded = append(res.Loaded, proto.LoadedModule{Name: moduleName(f), InitNS: time.Since(at).Nanoseconds()})
	}
	res.DurationNS = time.Since(start).Nanoseconds()
	return res, nil
}

// commandLineOptions finds a module's parameters among the words the kernel was booted with:
// "nouveau.config=NvMSI=0" is for nouveau. For a module that is no part of the kernel, it is
// the loader who must pass them.
func commandLineOptions(cmdline, name string) []string {
	var options []string
	for _, w := range strings.Fields(cmdline) {
		module, option, ok := strings.Cut(w, ".")
		if ok && moduleName(module) == name && option != "" {
			options = append(options, option)
		}
	}
	return options
}

// compressedFile tells finit_module that the kernel is to decompress.
const compressedFile = 4

func insert(file, options string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	flags := 0
	if !strings.HasSuffix(file, ".ko") {
		flags = compressedFile
	}
	return unix.FinitModule(int(f.Fd()), options, flags)
}

// closure returns the files to load for a module, itself last. modules.dep lists what a module
// needs with the most basic last.
func closure(deps, name string) ([]string, error) {
	for line := range strings.SplitSeq(deps, "\n") {
		file, needs, ok := strings.Cut(line, ":")
		if !ok || moduleName(file) != moduleName(name) {
			continue
		}
		fields := strings.Fields(needs)
		files := make([]string, 0, len(fields)+1)
		for i := len(fields) - 1; i >= 0; i-- {
			files = append(files, fields[i])
		}
		return append(files, file), nil
	}
	return nil, fmt.Errorf("no module %q in modules.dep", name)
}

// moduleName is what the kernel calls the module in a file.
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	return strings.ReplaceAll(name, "-", "_")
}

// Rmmod unloads one module.
func (s *System) Rmmod(a proto.ModprobeArgs) (struct{}, error) {
	return struct{}{}, unix.DeleteModule(moduleName(a.Name), unix.O_NONBLOCK)
}
