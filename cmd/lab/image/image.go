// Package image builds the initramfs of a lab guest: the guest program as its init,
// the kernel modules that it loads and, if asked for, firmware and Debian's Mesa with programs
// that use it.
//
// The guest program is built from the project's source with the Go toolchain of this
// machine, without cgo. An image is named by a hash of its content and put in place by
// a rename. The package owns the folder images of the cache and starts no goroutines.
package image

import (
	"context"
	"crypto/sha256"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/cmd/lab/kmod"
)

// module is the path of the project's module, and guest the package of the guest
// program.
const (
	module = "github.com/umbra-gpu/umbra"
	guest  = module + "/tests/guests/cmd/agent"
)

// program is the guest program, built once for this process.
var program struct {
	sync.Mutex
	data []byte
}

// Content is what is in an image besides the guest program.
type Content struct {
	Kernel   fetch.Kernel
	Mesa     *fetch.Mesa // nil for none
	Programs []string    // C sources, compiled against Mesa, and executable files; the guest has them in ProgramsDir

	Firmware      *fetch.Firmware // nil for none
	FirmwareFiles []string        // of its Root, for /lib/firmware

	Only bool // the guest runs Programs alone: without Mesa if they do not use it

	Progress io.Writer // lines for a person; nil for none
}

// ProgramsDir is where a guest has its compiled programs, by the names of their sources. With a
// compiler, it has the sources there too, and the headers of the project's programs.
const ProgramsDir = "/programs"

// userCache is where a guest's Mesa looks for what it has compiled: its programs have HOME=/tmp.
const userCache = "tmp/.cache"

// programs is the project's folder of programs, with the headers that they share.
const programs = "tests/shim/programs"

// Programs returns the sources of programs of the project.
func Programs(names ...string) ([]string, error) {
	src, err := Source()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		out = append(out, filepath.Join(src, programs, n+".c"))
	}
	return out, nil
}

// Build returns the path of the image with this content, in a folder.
func Build(ctx context.Context, dir string, c Content) (string, error) {
	init, err := build(ctx, dir)
	if err != nil {
		return "", err
	}
	var a archive
	// The Go runtime needs /dev/null, and the kernel /dev/console, before init can mount /dev.
	a.add("dev", fs.ModeDir|0o755, 0, 0, nil)
	a.add("dev/console", fs.ModeCharDevice|0o600, 5, 1, nil)
	a.add("dev/null", fs.ModeCharDevice|0o666, 1, 3, nil)
	a.add("tmp", fs.ModeDir|0o777, 0, 0, nil)
	a.add("init", 0o755, 0, 0, init)
	var files []string // of Mesa
	var shaders string // a folder
	var compiled []string
	if c.Mesa != nil {
		plain, err := a.addPrograms(ctx, c)
		if err != nil {
			return "", err
		}
		mesa := *c.Mesa
		libC := c.Only && plain
		if libC {
			mesa = mesa.LibC()
		}
		if files, err = mesa.GuestFiles(); err != nil {
			return "", err
		}
		if !libC && !mesa.Vulkan {
			shaders, compiled, err = mesa.Shaders(ctx)
		}
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil && c.Progress != nil:
			fmt.Fprintf(c.Progress, "the guest compiles OpenCL's library itself, which takes longer: %v\n", err)
		}
	}
	if c.Kernel.Modules != "" {
		change := kmod.Unsigned
		if c.Kernel.Version == "" {
			change = nil // the user's own may refuse modules without a signature
		}
		if err := a.addFolder(libDir(c)+"/modules", c.Kernel.Modules, change); err != nil {
			return "", err
		}
	}

	// What was fetched does not change, so the versions stand for it.
	hash := sha256.New()
	hash.Write(a.Bytes())
	if c.Mesa != nil {
		fmt.Fprintln(hash, c.Mesa.Packages, files, compiled)
	}
	if c.Firmware != nil {
		fmt.Fprintln(hash, c.Firmware.Packages, c.FirmwareFiles)
	}
	out := filepath.Join(dir, fmt.Sprintf("%s-%x.cpio", c.Kernel.Release, hash.Sum(nil)[:8]))
	now := time.Now()
	if os.Chtimes(out, now, now) == nil {
		return out, nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	tmp, err := os.CreateTemp(dir, "new-")
	if err != nil {
		return "", err
	}
	defer os.Remove(tmp.Name())
	if c.Mesa != nil {
		err = errors.Join(a.addFiles(tmp, "", c.Mesa.Root, files, nil), a.addFiles(tmp, userCache, shaders, compiled, nil))
	}
	if c.Firmware != nil && err == nil {
		err = a.addFiles(tmp, libDir(c)+"/firmware", c.Firmware.Root, c.FirmwareFiles, nil)
	}
	a.add("TRAILER!!!", 0, 0, 0, nil)
	_, werr := tmp.Write(a.Bytes())
	if err := errors.Join(err, werr, tmp.Close()); err != nil {
		return "", err
	}
	if err := os.Rename(tmp.Name(), out); err != nil {
		return "", err
	}
	return out, prune(dir)
}

// build returns the guest program. It stays in the folder: the toolchain does not link it again if nothing changed.
func build(ctx context.Context, dir string) ([]byte, error) {
	program.Lock()
	defer program.Unlock()
	if program.data != nil {
		return program.data, nil
	}
	src, err := Source()
	if err != nil {
		return nil, err
	}
	unlock, err := fetch.Lock(ctx, filepath.Join(dir, "agent.lock"), nil)
	if err != nil {
		return nil, err
	}
	defer unlock()
	bin := filepath.Join(dir, "agent")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", bin, guest)
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the guest program: %w\n%s", err, out)
	}
	program.data, err = os.ReadFile(bin)
	return program.data, err
}

// libDir is where the guest program looks for modules, and the kernel for firmware. Debian has /lib as a link.
func libDir(c Content) string {
	if c.Mesa != nil {
		return "usr/lib"
	}
	return "lib"
}

// addPrograms adds the programs. It compiles those that are sources, and reports whether all of them use the C library alone.
func (a *archive) addPrograms(ctx context.Context, c Content) (plain bool, err error) {
	tmp, err := os.MkdirTemp("", "umbra-image-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(tmp)
	src, err := Source()
	if err != nil {
		return false, err
	}
	plain = len(c.Programs) > 0
	for _, source := range c.Programs {
		name, isSource := strings.CutSuffix(filepath.Base(source), ".c")
		bin := filepath.Join(tmp, name)
		if isSource {
			err = c.Mesa.Compile(ctx, source, bin, "-I"+filepath.Join(src, programs))
		} else if data, readErr := os.ReadFile(source); readErr != nil {
			err = readErr
		} else {
			err = os.WriteFile(bin, data, 0o755)
		}
		if err != nil {
			return false, err
		}
		plain = plain && isSource && usesLibC(bin)
	}
	if c.Mesa.Tools {
		headers, err := filepath.Glob(filepath.Join(src, programs, "*.h"))
		if err != nil {
			return false, err
		}
		for _, text := range slices.Concat(c.Programs, headers) {
			data, err := os.ReadFile(text)
			if err == nil {
				err = os.WriteFile(filepath.Join(tmp, filepath.Base(text)), data, 0o644)
			}
			if err != nil {
				return false, err
			}
		}
	}
	return plain, a.addFolder(ProgramsDir[1:], tmp, nil)
}

// others are functions by which a program comes to libraries or programs that it does not name.
var others = regexp.MustCompile(`^_*(dlm?open|system|popen|posix_spawnp?|f?exec.*)$`)

// usesLibC reports whether a program uses the C library alone.
func usesLibC(bin string) bool {
	f, err := elf.Open(bin)
	if err != nil {
		return false
	}
	defer f.Close()
	libs, err := f.ImportedLibraries()
	symbols, err2 := f.ImportedSymbols()
	return errors.Join(err, err2) == nil &&
		!slices.ContainsFunc(libs, func(name string) bool { return !slices.Contains(fetch.LibCParts, name) }) &&
		!slices.ContainsFunc(symbols, func(s elf.ImportedSymbol) bool { return others.MatchString(s.Name) })
}

// Source finds the project's source tree: the one that holds the working folder, or
// the one that this program was built from.
func Source() (string, error) {
	if dir, err := os.Getwd(); err == nil {
		for ; dir != filepath.Dir(dir); dir = filepath.Dir(dir) {
			if isSource(dir) {
				return dir, nil
			}
		}
	}
	if _, file, _, ok := runtime.Caller(0); ok {
		// cmd/lab/image/image.go
		if dir := filepath.Join(filepath.Dir(file), "..", "..", ".."); isSource(dir) {
			return dir, nil
		}
	}
	return "", errors.New("guest images are built from source: run this inside a checkout of " + module)
}

func isSource(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(data), "module "+module+"\n")
}
