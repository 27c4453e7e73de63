package fetch

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// libraries is where Debian keeps those of amd64.
const libraries = "usr/lib/x86_64-linux-gnu"

// guestFiles are what a guest's programs are started with, or open by name: OpenCL by
// rusticl, and OpenGL without a window system. The libraries that these need come along. The
// whole folder would take twice the guest's memory.
var guestFiles = []string{
	"usr/lib64/ld-linux-x86-64.so.2", // programs name it as their interpreter
	"usr/bin/clinfo",
	"etc/OpenCL/vendors/rusticl.icd",
	libraries + "/libOpenCL.so.1",
	libraries + "/libRusticlOpenCL.so.1",
	"usr/lib/clc/spirv*", // the OpenCL C library
	"usr/lib/llvm-*/lib/clang/*/include/opencl-c*.h",

	libraries + "/libEGL.so.1",
	libraries + "/libEGL_mesa.so.0",
	libraries + "/libGLESv2.so.2",
	libraries + "/libOpenGL.so.0",
	"usr/share/glvnd/egl_vendor.d/*",
	"usr/share/drirc.d/*",
}

// GuestFiles lists the part of the folder that goes into a guest's image: files, and links
// with their targets.
func (m *Mesa) GuestFiles() ([]string, error) {
	files := []string{"bin", "lib", "lib64", "sbin"}
	var queue []string
	for _, pattern := range guestFiles {
		found, err := filepath.Glob(filepath.Join(m.Root, pattern))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("Mesa %s has no %s", m.Version, pattern)
		}
		queue = append(queue, found...)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		name, err := filepath.Rel(m.Root, queue[0])
		if err != nil {
			return nil, err
		}
		if slices.Contains(files, name) {
			continue
		}
		files = append(files, name)
		more, err := m.needs(queue[0])
		if err != nil {
			return nil, err
		}
		queue = append(queue, more...)
	}
	slices.Sort(files)
	return files, nil
}

// needs returns what a file refers to: the target of a link, or the libraries of a
// program.
func (m *Mesa) needs(file string) ([]string, error) {
	if target, err := os.Readlink(file); err == nil {
		if path.IsAbs(target) {
			return []string{filepath.Join(m.Root, target)}, nil
		}
		return []string{filepath.Join(filepath.Dir(file), target)}, nil
	}
	f, err := elf.Open(file)
	if format := new(elf.FormatError); errors.As(err, &format) {
		return nil, nil // not a program
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		out = append(out, filepath.Join(m.Root, libraries, n))
	}
	return out, nil
}

// Compile compiles a C source against the folder's OpenCL and OpenGL, with this machine's
// compiler, whose C library may be older than Debian's, not newer. Headers are those beside
// the source and those in other folders that flags name.
func (m *Mesa) Compile(ctx context.Context, source, out string, flags ...string) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		return fmt.Errorf("compiling %s: %w; install gcc and libc6-dev", filepath.Base(source), err)
	}
	args := append(flags, "-O2", "-Wall", "-o", out, "-x", "c", source, "-x", "none", "-idirafter", filepath.Join(m.Root, "usr/include"),
		"-L"+filepath.Join(m.Root, libraries), "-Wl,--as-needed", "-Wl,--allow-shlib-undefined",
		"-l:libOpenCL.so.1", "-l:libEGL.so.1", "-l:libOpenGL.so.0", "-lm")
	if said, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %s: %w\n%s", filepath.Base(source), err, strings.TrimSpace(string(said)))
	}
	return nil
}
