package fetch

import (
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
	return l, stamped(l.Dir, &l)
}

// LibVFIOUser returns the library, which it builds if it has not been built.
// Its licence stays in the folder; nothing of it enters the repository.
func (c *Cache) LibVFIOUser(ctx context.Context) (LibVFIOUser, error) {
	l, ok := c.BuiltLibVFIOUser()
	if ok {
		return l, nil
	}
	// CC may hold flags after the name.
	cc := strings.Fields(os.Getenv("CC"))
	if len(cc) == 0 {
		cc = []string{"gcc"}
	}
	for _, tool := range []string{cc[0], "tar", "xz"} {
		if _, err := exec.LookPath(tool); err != nil {
			return l, fmt.Errorf("%w: building libvfio-user needs %s: %w; install gcc, libc6-dev, tar and xz-utils", ErrUnavailable, tool, err)
		}
	}
	err := c.make(ctx, l.Dir, &l, nil, func(tmp string) error { return c.buildLibVFIOUser(ctx, tmp, cc, &l) })
	if err != nil {
		return l, fmt.Errorf("building libvfio-user: %w", err)
	}
	return l, nil
}

// libSources are the lists the library is built from. json-c is of the older
// release, so that it runs with the C library of either.
func libSources(m mirror, keyring string) string {
	signed := strings.ReplaceAll(keyring, " ", "%20")
	return fmt.Sprintf("deb-src [signed-by=%s] %s %s main\ndeb [arch=amd64 signed-by=%s] %s %s main\n",
		signed, m.main, trixie, signed, m.main, bookworm)
}

func (c *Cache) buildLibVFIOUser(ctx context.Context, tmp string, cc []string, l *LibVFIOUser) error {
	a, err := c.openAptAt(ctx, c.path("apt-src"), libSources)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	source := filepath.Join(tmp, "source")
	json := filepath.Join(tmp, "json")
	for _, d := range []string{source, json} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	c.printf("libvfio-user: the source package %s of %s (40 MB), and json-c", libSource, trixie)
	err = a.refreshed(ctx, func() error {
		stop := c.watch(source, 40e6)
		defer stop()
		if _, err := a.run(ctx, source, "apt-get", "source", "-q", "--download-only", "--only-source", libSource+"/"+trixie); err != nil {
			return err
		}
		_, err := a.run(ctx, json, "apt-get", "download", "-q", "libjson-c5", "libjson-c-dev")
		return err
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := l.collectPackages(source, json); err != nil {
		return err
	}
	if err := c.unpack(ctx, json, filepath.Join(tmp, "json-root")); err != nil {
		return err
	}
	src, err := c.unpackLibrary(ctx, source)
	if err != nil {
		return err
	}
	return c.compileLibrary(ctx, cc, src, filepath.Join(tmp, "json-root"), filepath.Join(tmp, "out"))
}

// collectPackages notes the versions of the downloaded packages, which their names have.
func (l *LibVFIOUser) collectPackages(source, debs string) error {
	described, err1 := filepath.Glob(filepath.Join(source, "*.dsc"))
	packed, err2 := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	if len(described) != 1 {
		return fmt.Errorf("apt-get succeeded but left %d descriptions of package %s, not one", len(described), libSource)
	}
	for _, f := range append(described, packed...) {
		name, rest, _ := strings.Cut(strings.TrimSuffix(filepath.Base(f), filepath.Ext(f)), "_")
		version, _, _ := strings.Cut(rest, "_")
		l.Packages = append(l.Packages, Package{Name: name, Version: strings.ReplaceAll(version, "%3a", ":")})
	}
	l.Version = l.Packages[0].Version
	return nil
}

// unpackLibrary takes the library's folder out of QEMU's source, whose digest
// apt has checked.
func (c *Cache) unpackLibrary(ctx context.Context, dir string) (string, error) {
	tars, err := filepath.Glob(filepath.Join(dir, "*.orig.tar.xz"))
	if err != nil {
		return "", err
	}
	if len(tars) != 1 {
		return "", fmt.Errorf("package %s has %d upstream archives, not one", libSource, len(tars))
	}
	if _, err := c.tool(ctx, dir, nil, "tar", "-xJf", tars[0], "--wildcards", "*/"+libSubdir+"/*"); err != nil {
		return "", err
	}
	found, err := filepath.Glob(filepath.Join(dir, "*", libSubdir))
	if err != nil {
		return "", err
	}
	if len(found) != 1 {
		return "", fmt.Errorf("package %s holds %d folders %s, not one", libSource, len(found), libSubdir)
	}
	return found[0], nil
}

// samples are the library's programs that serve a socket.
var samples = []string{"server", "gpio-pci-idio-16", "null"}

// compileLibrary builds like the library's own release build, but keeps its asserts.
func (c *Cache) compileLibrary(ctx context.Context, cc []string, src, json, out string) error {
	lib := filepath.Join(out, "lib")
	for _, d := range []string{lib, filepath.Join(out, "samples")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return err
		}
	}
	sources, err := filepath.Glob(filepath.Join(src, "lib", "*.c"))
	if err != nil {
		return err
	}
	// Only the library's own tests use the pipe transport.
	sources = slices.DeleteFunc(sources, func(f string) bool { return filepath.Base(f) == "tran_pipe.c" })
	run := func(args ...string) error {
		_, err := c.tool(ctx, src, nil, cc[0], append(cc[1:len(cc):len(cc)], args...)...)
		return err
	}
	common := []string{
		"-std=gnu99", "-O2", "-w", "-D_GNU_SOURCE", "-Iinclude", "-Ilib",
		"-I" + filepath.Join(json, "usr/include/json-c"),
	}
	jsonLib := filepath.Join(json, "usr/lib/x86_64-linux-gnu/libjson-c.a")
	c.printf("libvfio-user: compiling %d files", len(sources))
	args := append(slices.Clone(common), "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-soname,"+libName+libVersion, "-Wl,--exclude-libs,ALL")
	args = append(append(args, sources...), jsonLib, "-o", filepath.Join(lib, libName+libVersion))
	if err := run(args...); err != nil {
		return err
	}
	if err := os.Symlink(libName+libVersion, filepath.Join(lib, libName)); err != nil {
		return err
	}
	for _, s := range samples {
		args := append(slices.Clone(common), filepath.Join("samples", s+".c"), "-o", filepath.Join(out, "samples", s),
			"-L"+lib, "-lvfio-user", "-lpthread", "-Wl,-rpath,$ORIGIN/../lib")
		if err := run(args...); err != nil {
			return fmt.Errorf("sample %s: %w", s, err)
		}
	}
	if err := os.CopyFS(filepath.Join(out, "include"), os.DirFS(filepath.Join(src, "include"))); err != nil {
		return err
	}
	licence, err := os.ReadFile(filepath.Join(src, "LICENSE"))
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "LICENSE"), licence, 0o644)
}
