// Package image builds the initramfs of a lab guest: the guest program as its init,
// and the kernel modules that it loads.
//
// The guest program is built from the project's source with the Go toolchain of this
// machine, without cgo. An image is named by a hash of its content and put in place by
// a rename. The package owns the folder images of the cache and starts no goroutines.
package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab/fetch"
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

// Build returns the path of the image for a kernel, in a folder.
func Build(ctx context.Context, dir string, k fetch.Kernel) (string, error) {
	init, err := build(ctx)
	if err != nil {
		return "", err
	}
	var a archive
	// The Go runtime needs /dev/null, and the kernel /dev/console, before init can mount /dev.
	a.add("dev", fs.ModeDir|0o755, 0, 0, nil)
	a.add("dev/console", fs.ModeCharDevice|0o600, 5, 1, nil)
	a.add("dev/null", fs.ModeCharDevice|0o666, 1, 3, nil)
	a.add("init", 0o755, 0, 0, init)
	if k.Modules != "" {
		if err := a.addTree("lib/modules", k.Modules); err != nil {
			return "", err
		}
	}
	a.add("TRAILER!!!", 0, 0, 0, nil)

	hash := sha256.Sum256(a.Bytes())
	out := filepath.Join(dir, fmt.Sprintf("%s-%x.cpio", k.Release, hash[:8]))
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
	_, err = tmp.Write(a.Bytes())
	if err := errors.Join(err, tmp.Close()); err != nil {
		return "", err
	}
	if err := os.Rename(tmp.Name(), out); err != nil {
		return "", err
	}
	return out, prune(dir)
}

// build returns the guest program.
func build(ctx context.Context) ([]byte, error) {
	program.Lock()
	defer program.Unlock()
	if program.data != nil {
		return program.data, nil
	}
	src, err := Source()
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "umbra-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	bin := filepath.Join(tmp, "init")
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", bin, guest)
	cmd.Dir = src
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=", "GOWORK=off")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the guest program: %w\n%s", err, out)
	}
	program.data, err = os.ReadFile(bin)
	return program.data, err
}

// prune removes images that nobody used for two hours. A machine needs its image only
// to start.
func prune(dir string) error {
	old, err := filepath.Glob(filepath.Join(dir, "*.cpio"))
	if err != nil {
		return err
	}
	for _, p := range old {
		if info, err := os.Stat(p); err == nil && time.Since(info.ModTime()) > 2*time.Hour {
			os.Remove(p) // what cannot be removed only takes room
		}
	}
	return nil
}

// archive is a cpio archive in the format that the kernel reads ("newc").
type archive struct {
	bytes.Buffer
	files int
}

// add adds a file, a folder or a character device.
func (a *archive) add(name string, mode fs.FileMode, major, minor int, data []byte) {
	a.files++
	m := uint32(mode.Perm())
	switch {
	case mode.IsDir():
		m |= 0o040000
	case mode&fs.ModeCharDevice != 0:
		m |= 0o020000
	default:
		m |= 0o100000
	}
	fmt.Fprint(a, "070701")
	for _, v := range []int{a.files, int(m), 0, 0, 1, 0, len(data), 0, 0, major, minor, len(name) + 1, 0} {
		fmt.Fprintf(a, "%08x", v)
	}
	a.WriteString(name + "\x00")
	a.Write(make([]byte, -a.Len()&3))
	a.Write(data)
	a.Write(make([]byte, -a.Len()&3))
}

// addTree adds a folder and what is in it, and the folders above it.
func (a *archive) addTree(name, dir string) error {
	for i, c := range name {
		if c == '/' {
			a.add(name[:i], fs.ModeDir|0o755, 0, 0, nil)
		}
	}
	return filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		to := filepath.Join(name, rel)
		if d.IsDir() {
			a.add(to, fs.ModeDir|0o755, 0, 0, nil)
			return nil
		}
		data, err := os.ReadFile(p)
		a.add(to, 0o644, 0, 0, data)
		return err
	})
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
		// tests/lab/image/image.go
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
