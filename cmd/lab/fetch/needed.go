package fetch

import (
	"context"
	"debug/elf"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// machineLibraries are where this machine has libraries that a Mesa built here uses.
var machineLibraries = []string{"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"}

const libC = "libc.so.6"

// LibCParts are the C library and the program loader. They belong together: all of them are Debian's, or all are newer.
var LibCParts = []string{"ld-linux-x86-64.so.2", libC, "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libresolv.so.2"}

// addNeeded adds the libraries that files need, and those that these need.
func (p *prefix) addNeeded(ctx context.Context, c *Cache, libs string, files []string) error {
	seen := make(map[string]bool)
	for queue := slices.Clone(files); len(queue) > 0; queue = queue[1:] {
		added, err := p.addNeededBy(ctx, c, libs, queue[0], seen)
		if err != nil {
			return fmt.Errorf("Mesa %s: %s: %w", p.dir, filepath.Base(queue[0]), err)
		}
		queue = append(queue, added...)
	}
	return nil
}

// addNeededBy adds the libraries that one file needs, and returns the files that it copied.
func (p *prefix) addNeededBy(ctx context.Context, c *Cache, libs, file string, seen map[string]bool) (added []string, err error) {
	f, err := elf.Open(file)
	if err != nil {
		return nil, nil // a folder, or no library
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	needs, _ := f.DynamicVersionNeeds() // fails for a file without versions
	if err := p.seeToLibC(ctx, c, libs, needs); err != nil {
		return nil, err
	}
	for _, name := range names {
		if slices.Contains(LibCParts, name) {
			continue
		}
		from, err := p.find(libs, name, needs, seen)
		if err != nil {
			return nil, err
		}
		if from == "" {
			continue
		}
		if err := c.copy(ctx, libs, "-L", from); err != nil {
			return nil, err
		}
		added = append(added, from)
	}
	return added, nil
}

// find returns the library to copy for a name: the prefix's own, else none if Debian's is there, else this machine's; of
// those, the first that has the versions of symbols that are needed. What was seen are names, of which the prefix was asked,
// and files that were returned.
func (p *prefix) find(libs, name string, needs []elf.DynamicVersionNeed, seen map[string]bool) (from string, err error) {
	suits := func(file string) bool { return exists(file) && !seen[file] && lacking(file, needs) == "" }
	own, there := filepath.Join(p.dir, p.libs, name), filepath.Join(libs, name)
	switch {
	case !seen[name] && suits(own):
		from = own
	case suits(there):
	default:
		if from = firstOf(machineLibraries, name, suits); from == "" {
			what := name
			if exists(there) {
				what = strings.TrimSpace(lacking(there, needs) + " of " + name)
			}
			return "", fmt.Errorf("needs %s, which is neither in %s, nor in Debian's Mesa, nor on this machine; install it here, or copy it there", what, p.libs)
		}
	}
	seen[name] = true
	if from != "" {
		seen[from] = true
	}
	return from, nil
}

// firstOf returns the first file of a name in folders that suits, "" for none.
func firstOf(folders []string, name string, suits func(file string) bool) string {
	for _, dir := range folders {
		if file := filepath.Join(dir, name); suits(file) {
			return file
		}
	}
	return ""
}

// seeToLibC takes a newer C library, the prefix's or this machine's, if Debian's does not have the versions that are needed.
func (p *prefix) seeToLibC(ctx context.Context, c *Cache, libs string, needs []elf.DynamicVersionNeed) error {
	lacks := lacking(filepath.Join(libs, libC), needs)
	if lacks == "" {
		return nil
	}
	for _, dir := range append([]string{filepath.Join(p.dir, p.libs)}, machineLibraries...) {
		if parts := match(dir, LibCParts...); len(parts) == len(LibCParts) && lacking(filepath.Join(dir, libC), needs) == "" {
			return c.copy(ctx, libs, "-L", parts...)
		}
	}
	return fmt.Errorf("needs %s, which the C libraries of Debian's %s and of this machine do not have; build Mesa on this machine, or on a system that is not newer", lacks, trixie)
}

// lacking returns a version of symbols that is needed of a library and that the file has not, "" for none.
func lacking(file string, needs []elf.DynamicVersionNeed) string {
	f, err := elf.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	has, err := f.DynamicVersions()
	if err != nil || len(has) == 0 {
		return "" // the program loader is content with a file without versions
	}
	for _, n := range needs {
		for _, d := range n.Needs {
			if n.Name == filepath.Base(file) && !slices.ContainsFunc(has, func(v elf.DynamicVersion) bool { return v.Name == d.Dep }) {
				return d.Dep
			}
		}
	}
	return ""
}

// compilerFiles adds what OpenCL's compiler opens by name: the prefix's own, and of this machine what Debian's Mesa does not have.
func (p *prefix) compilerFiles(ctx context.Context, c *Cache, root string) error {
	own := filepath.Join(p.dir, "lib")
	for _, lib := range []string{own, "/usr/lib"} {
		for _, file := range match(lib, "llvm-*/lib/clang/*/include/opencl-c*.h", "clang/*/include/opencl-c*.h", "clc/spirv*") {
			to := filepath.Join(root, "usr/lib", strings.TrimPrefix(file, lib))
			if lib != own && exists(to) {
				continue
			}
			if err := c.copy(ctx, filepath.Dir(to), "-Lp", file); err != nil {
				return err
			}
		}
	}
	return nil
}
