package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// LibVFIOUser is the C library libvfio-user with its headers and its sample
// programs, built from the copy in the source package of trixie's QEMU.
type LibVFIOUser struct {
	Version  string    `json:"version"`  // of the source package
	Packages []Package `json:"packages"` // the source, and json-c, which is linked into the library

	Dir string `json:"-"` // include, lib, samples
}

const (
	libSource  = "qemu"
	libSubdir  = "subprojects/libvfio-user"
	libFolder  = "libvfio-user"
	libName    = "libvfio-user.so"
	libVersion = ".0" // the library has promised no other
)

// CGOFlags are the compiler's and the linker's flags, for CGO_CFLAGS and
// CGO_LDFLAGS.
func (l *LibVFIOUser) CGOFlags() (cflags, ldflags string) {
	lib := filepath.Join(l.Dir, "lib")
	return "-I" + filepath.Join(l.Dir, "include"), "-L" + lib + " -Wl,-rpath," + lib
}

// GoEnv is what the go command's environment needs to build with the library.
func (l *LibVFIOUser) GoEnv() []string {
	cflags, ldflags := l.CGOFlags()
	return []string{"CGO_ENABLED=1", "CGO_CFLAGS=" + cflags, "CGO_LDFLAGS=" + ldflags}
}

// OwnLibVFIOUser reports whether the compiler's or the linker's variables name the user's
// own library, and what the environment of the go command needs then.
func OwnLibVFIOUser() (env []string, ok bool) {
	return []string{"CGO_ENABLED=1"}, os.Getenv("CGO_CFLAGS") != "" || os.Getenv("CGO_LDFLAGS") != ""
}

// ErrUnavailable means that this machine lacks a tool, or that no mirror has the package.
var ErrUnavailable = errors.New("unavailable on this machine")

// Sample is the path of one of the library's sample servers.
func (l *LibVFIOUser) Sample(name string) string { return filepath.Join(l.Dir, "samples", name) }

// BuiltLibVFIOUser returns the library if it has been built.
func (c *Cache) BuiltLibVFIOUser() (LibVFIOUser, bool) {
	l := LibVFIOUser{Dir: c.path(libFolder)}
	return l, stamped(l.Dir, &l, nil)
}

// LibVFIOUser returns the library, which it builds if it has not been built.
// Its licence stays in the folder; nothing of it enters the repository.
func (c *Cache) LibVFIOUser(ctx context.Context) (LibVFIOUser, error) {
	l, ok := c.BuiltLibVFIOUser()
	if ok {
		return l, nil
	}
	// CC may hold flags after the name.
	cc := strings.Fields(cmp.Or(os.Getenv("CC"), "gcc"))
	for _, tool := range []string{cc[0], "tar", "xz"} {
		if _, err := exec.LookPath(tool); err != nil {
			return l, fmt.Errorf("%w: building libvfio-user needs %s: %w; install gcc, libc6-dev, tar and xz-utils", ErrUnavailable, tool, err)
		}
	}
	return l, c.make(ctx, "building libvfio-user", l.Dir, &l, nil, func(tmp string) error { return c.buildLibVFIOUser(ctx, tmp, cc, &l) })
}

func (c *Cache) buildLibVFIOUser(ctx context.Context, tmp string, cc []string, l *LibVFIOUser) error {
	// json-c is of the older release, so that it runs with the C library of either.
	a, err := c.openApt(ctx, "apt-src", [3]string{"deb-src", trixie, "main"}, [3]string{"deb", bookworm, "main"})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	source := filepath.Join(tmp, "source")
	json := filepath.Join(tmp, "json")
	if err := errors.Join(os.MkdirAll(source, 0o755), os.MkdirAll(json, 0o755)); err != nil {
		return err
	}
	err = a.refreshed(ctx, func() error {
		described, err := a.get(ctx, source, "source", "-q", "--download-only", "--only-source", libSource+"/"+trixie)
		if err != nil {
			return err
		}
		packed, err := a.get(ctx, json, "download", "-q", "libjson-c5", "libjson-c-dev")
		l.Packages = append(described, packed...)
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	l.Version = versionOf(l.Packages, libSource)
	if err := c.unpack(ctx, json, filepath.Join(tmp, "json-root")); err != nil {
		return err
	}
	src, err := c.unpackLibrary(ctx, source)
	if err != nil {
		return err
	}
	return c.compileLibrary(ctx, cc, src, filepath.Join(tmp, "json-root"), filepath.Join(tmp, "out"))
}

// unpackLibrary takes the library's folder out of QEMU's source, whose digest
// apt has checked.
func (c *Cache) unpackLibrary(ctx context.Context, dir string) (string, error) {
	tar := firstMatch(dir, "*.orig.tar.xz")
	if tar == "" {
		return "", fmt.Errorf("package %s has no upstream archive", libSource)
	}
	if _, err := c.tool(ctx, dir, nil, "tar", "-xJf", tar, "--wildcards", "*/"+libSubdir+"/*"); err != nil {
		return "", err
	}
	found := firstMatch(dir, "*/"+libSubdir)
	if found == "" {
		return "", fmt.Errorf("package %s holds no folder %s", libSource, libSubdir)
	}
	return found, nil
}

// samples are the library's programs that serve a socket.
var samples = []string{"server", "gpio-pci-idio-16", "null"}

// compileLibrary builds like the library's own release build, but keeps its asserts.
func (c *Cache) compileLibrary(ctx context.Context, cc []string, src, json, out string) error {
	lib := filepath.Join(out, "lib")
	if err := errors.Join(os.MkdirAll(lib, 0o755), os.MkdirAll(filepath.Join(out, "samples"), 0o755)); err != nil {
		return err
	}
	sources, err := filepath.Glob(filepath.Join(src, "lib", "*.c"))
	if err != nil {
		return err
	}
	// Only the library's own tests use the pipe transport.
	sources = slices.DeleteFunc(sources, func(f string) bool { return filepath.Base(f) == "tran_pipe.c" })
	compile := func(args ...string) error {
		common := []string{"-std=gnu99", "-O2", "-w", "-D_GNU_SOURCE", "-Iinclude", "-Ilib", "-I" + filepath.Join(json, "usr/include/json-c")}
		_, err := c.tool(ctx, src, nil, cc[0], slices.Concat(cc[1:], common, args)...)
		return err
	}
	jsonLib := filepath.Join(json, "usr/lib/x86_64-linux-gnu/libjson-c.a")
	c.printf("libvfio-user: compiling %d files", len(sources))
	shared := []string{"-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname," + libName + libVersion, "-Wl,--exclude-libs,ALL"}
	if err := compile(slices.Concat(shared, sources, []string{jsonLib, "-o", filepath.Join(lib, libName+libVersion)})...); err != nil {
		return err
	}
	if err := os.Symlink(libName+libVersion, filepath.Join(lib, libName)); err != nil {
		return err
	}
	for _, s := range samples {
		err := compile(filepath.Join("samples", s+".c"), "-o", filepath.Join(out, "samples", s),
			"-L"+lib, "-lvfio-user", "-lpthread", "-Wl,-rpath,$ORIGIN/../lib")
		if err != nil {
			return fmt.Errorf("sample %s: %w", s, err)
		}
	}
	if err := os.CopyFS(filepath.Join(out, "include"), os.DirFS(filepath.Join(src, "include"))); err != nil {
		return err
	}
	_, err = c.tool(ctx, "", nil, "cp", filepath.Join(src, "LICENSE"), out)
	return err
}
