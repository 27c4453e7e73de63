package fetch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// EnvLLVM names a libLLVM.so.19.1 to use instead of a fetched one.
const EnvLLVM = "UMBRA_LLVM"

// LLVM is the shared library of the compiler that umbra-jit loads.
type LLVM struct {
	Version  string    `json:"version"`
	Packages []Package `json:"packages,omitempty"`

	// File is the shared object, and Dir the folder that its own dependencies are in, "" if the system has them.
	File string `json:"-"`
	Dir  string `json:"-"`
}

const (
	llvmPackage = "libllvm19"
	llvmLibrary = "libLLVM.so.19.1"
)

// llvmDirs are the cache's folder of the library, and in it that of the libraries.
func (c *Cache) llvmDirs() (dir, libraries string) {
	dir = c.path("llvm")
	return dir, filepath.Join(dir, "root/usr/lib/x86_64-linux-gnu")
}

// CachedLLVM is the folder of the library that the user's cache has, and of its dependencies, "" without one.
func CachedLLVM() string {
	cache, err := DefaultDir()
	if err != nil {
		return ""
	}
	_, libraries := (&Cache{Dir: cache}).llvmDirs()
	var st unix.Stat_t
	if unix.Stat(filepath.Join(libraries, llvmLibrary), &st) != nil || int(st.Uid) != os.Geteuid() {
		return "" // also where another user could have put it
	}
	return libraries
}

// LLVM returns the library: the user's ($UMBRA_LLVM), or the cached one, or one that it fetches. The
// suite is the oldest that has it, so that this machine's C library is not older than its own.
func (c *Cache) LLVM(ctx context.Context) (LLVM, error) {
	if p := os.Getenv(EnvLLVM); p != "" {
		if _, err := os.Stat(p); err != nil {
			return LLVM{}, fmt.Errorf("%s: %w; want the path of a %s", EnvLLVM, err, llvmLibrary)
		}
		return LLVM{File: p}, nil
	}
	dir, libraries := c.llvmDirs()
	var l LLVM
	err := c.make(ctx, "fetching LLVM", dir, &l, []string{llvmPackage}, func(tmp string) (err error) {
		root := filepath.Join(tmp, "out", "root")
		l.Packages, err = c.fetchTree(ctx, tmp, root, bookworm, llvmPackage)
		l.Version = versionOf(l.Packages, llvmPackage)
		return err
	})
	if err != nil {
		return LLVM{}, err
	}
	l.File, l.Dir = filepath.Join(libraries, llvmLibrary), libraries
	if !exists(l.File) {
		return LLVM{}, fmt.Errorf("package %s %s has no %s", llvmPackage, l.Version, llvmLibrary)
	}
	return l, nil
}
