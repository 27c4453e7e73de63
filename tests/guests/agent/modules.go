package agent

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/cmd/lab/proto"
)

// Modprobe loads a module and those it depends on, and times each. The modules stand in
// one folder, in the order of loading.
func (s *System) Modprobe(a proto.ModprobeArgs) (res proto.ModprobeResult, err error) {
	res.Loaded = []proto.LoadedModule{}
	files := s.glob("lib/modules/*.ko")
	last := slices.IndexFunc(files, func(f string) bool { return moduleName(f) == moduleName(a.Name) })
	if _, err := os.Stat(s.path("sys/module/" + moduleName(a.Name))); last < 0 && err == nil {
		return res, nil // built in
	}
	if last < 0 {
		return res, fmt.Errorf("no module %q in /lib/modules", a.Name)
	}
	cmdline, err := s.read("proc/cmdline")
	if err != nil {
		return res, err
	}
	for i, f := range files[:last+1] {
		options := commandLineOptions(cmdline, moduleName(f))
		if i == last {
			options = append(options, a.Options...)
		}
		at := time.Now()
		err := insert(s.path(f), strings.Join(options, " "))
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return res, fmt.Errorf("%s: %w", f, err)
		}
		res.Loaded = append(res.Loaded, proto.LoadedModule{Name: moduleName(f), InitNS: time.Since(at).Nanoseconds()})
	}
	return res, nil
}

// commandLineOptions finds a module's parameters on the kernel's command line:
// "nouveau.config=NvMSI=0" is for nouveau. The loader of a module must pass them.
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

func insert(file, options string) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), options, 0)
}

// moduleName is the kernel's name of a module, given that or a file such as
// "12-nouveau.ko".
func moduleName(file string) string {
	name, _, _ := strings.Cut(filepath.Base(file), ".")
	if number, rest, ok := strings.Cut(name, "-"); ok && strings.Trim(number, "0123456789") == "" {
		name = rest
	}
	return strings.ReplaceAll(name, "-", "_")
}

// Rmmod unloads one module.
func (s *System) Rmmod(a proto.ModprobeArgs) error {
	return unix.DeleteModule(moduleName(a.Name), unix.O_NONBLOCK)
}
