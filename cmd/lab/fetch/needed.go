package fetch

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// machineLibraries are where this machine has libraries that a Mesa built here uses.
var machineLibraries = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"}

// LibCParts are the C library and the program loader. They belong together: all of them are Debian's, or all are newer.
var LibCParts = []string{"ld-linux-x86-64.so.2", "libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2"}

// addNeeded adds the libraries that files need: the prefix's own, else Debian's, which are there, else this machine's.
func (p *prefix) addNeeded(root string, files []string) error {
	libs := filepath.Join(root, libraries)
	done := make(map[string]bool)
	for queue := slices.Clone(files); len(queue) > 0; queue = queue[1:] {
		f, err := elf.Open(queue[0])
		if err != nil {
			continue // not a library
		}
		names, err := f.ImportedLibraries()
		needs, _ := f.DynamicVersionNeeds() // fails for a file without versions
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", queue[0], err)
		}
		file := filepath.Base(queue[0])
		if err := p.seeToLibc(libs, file, needs); err != nil {
			return err
		}
		for _, name := range names {
			if done[name] || slices.Contains(LibCParts, name) {
				continue
			}
			done[name] = true
			from := firstMatch("", filepath.Join(p.dir, p.libs, name))
			if from == "" && exists(filepath.Join(libs, name)) {
				continue
			}
			for _, dir := range machineLibraries {
				from = cmp.Or(from, firstMatch(dir, name))
			}
			if from == "" {
				return fmt.Errorf("Mesa %s: %s needs %s, which is neither in %s, nor in Debian's Mesa, nor on this machine; install it here, or copy it there", p.dir, file, name, p.libs)
			}
			copied, err := copyReal(from, filepath.Join(libs, name))
			if err != nil {
				return err
			}
			queue = append(queue, copied...)
		}
	}
	return nil
}

// seeToLibc takes a newer C library, the prefix's or this machine's, if Debian's does not have what a file needs.
func (p *prefix) seeToLibc(libs, file string, needs []elf.DynamicVersionNeed) error {
	lacks, err := tooNew(libs, needs)
	if lacks == "" || err != nil {
		return err
	}
	for _, dir := range append([]string{filepath.Join(p.dir, p.libs)}, machineLibraries...) {
		if still, err := tooNew(dir, needs); still != "" || err != nil || !exists(filepath.Join(dir, LibCParts[0])) {
			continue
		}
		for _, part := range LibCParts {
			if _, err := copyReal(filepath.Join(dir, part), filepath.Join(libs, part)); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("Mesa %s: %s needs %s, and the C libraries of Debian's %s and of this machine do not have it; build Mesa on this machine, or on a system that is not newer", p.dir, file, lacks, trixie)
}

// tooNew returns a version of the C library that is needed and not in a folder, "" for none.
func tooNew(dir string, needs []elf.DynamicVersionNeed) (string, error) {
	f, err := elf.Open(filepath.Join(dir, "libc.so.6"))
	if err != nil {
		return "", err
	}
	defer f.Close()
	has, err := f.DynamicVersions()
	for _, n := range needs {
		for _, d := range n.Needs {
			if n.Name == "libc.so.6" && !slices.ContainsFunc(has, func(v elf.DynamicVersion) bool { return v.Name == d.Dep }) {
				return d.Dep, err
			}
		}
	}
	return "", err
}

// copyReal copies the file that a link leads to.
func copyReal(from, to string) ([]string, error) {
	real, err := filepath.EvalSymlinks(from)
	if err != nil {
		return nil, err
	}
	return copyInto(real, to)
}

// compilerFiles adds what OpenCL's compiler opens by name: the prefix's own, and of this machine what Debian's Mesa does not have.
func (p *prefix) compilerFiles(root string) error {
	own := filepath.Join(p.dir, "lib")
	for _, lib := range []string{own, "/usr/lib"} {
		for _, pattern := range []string{"llvm-*/lib/clang/*/include/opencl-c*.h", "clang/*/include/opencl-c*.h", "clc/spirv*"} {
			found, _ := filepath.Glob(filepath.Join(lib, pattern)) // fails only for a bad pattern
			for _, file := range found {
				if to := filepath.Join(root, "usr/lib", strings.TrimPrefix(file, lib)); lib == own || !exists(to) {
					if _, err := copyInto(file, to); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// copyInto copies a file, a link or a folder, and returns the files. It replaces what is there, and does not
// write to it: that may be another folder's file, too.
func copyInto(from, to string) (files []string, err error) {
	err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		at := filepath.Join(to, strings.TrimPrefix(name, from))
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(at, 0o755)
		}
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if d.Type()&fs.ModeSymlink != 0 {
			target, err := os.Readlink(name)
			return errors.Join(err, os.Symlink(target, at))
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		files = append(files, at)
		return os.WriteFile(at, data, 0o755)
	})
	return files, err
}
