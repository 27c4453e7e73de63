// Package image builds the initramfs a lab guest boots into: u-root's init,
// which starts the guest agent, and the kernel modules the agent loads.
//
// u-root and the agent come from the module tests/guests and are built with
// the Go toolchain of this machine, without cgo. An image is two cpio archives
// in one file, as the kernel accepts them: programs, which are the same for
// all kernels, and modules. Both parts are named by a hash of what went into
// them, so that a changed source builds a new image and an unchanged one is
// found again.
//
// The package owns the folder images of the cache, with its lock file; an
// image is put in place complete, by a rename. It starts no goroutines.
package image

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/tests/lab/fetch"
)

// Module is the path of the project's main module.
const Module = "github.com/umbra-gpu/umbra"

// DefaultAgent is the guest agent's package, relative to tests/guests.
const DefaultAgent = "./cmd/agent"

// agentPath is where the agent stands in the guest.
const agentPath = "bin/agent"

// Builder builds images.
type Builder struct {
	Dir      string    // folder for images
	Source   string    // the project's source tree; "" to look for it
	Agent    string    // package to build as the agent; "" for DefaultAgent
	Progress io.Writer // lines for a person who waits; nil for none
}

// Build returns the path of the image for a kernel, built if need be.
func (b *Builder) Build(ctx context.Context, k fetch.Kernel) (string, error) {
	src, err := b.source()
	if err != nil {
		return "", err
	}
	agent := b.Agent
	if agent == "" {
		agent = DefaultAgent
	}
	guests := filepath.Join(src, "tests", "guests")
	programs, err := hashPrograms(src, guests, agent)
	if err != nil {
		return "", err
	}
	modules, err := hashTree(sha256.New(), k.Modules, func(string) bool { return true })
	if err != nil {
		return "", err
	}
	out := filepath.Join(b.Dir, fmt.Sprintf("%s-%s-%s.cpio", k.Release, programs, modules))
	if touch(out) {
		return out, nil
	}

	unlock, err := fetch.Lock(ctx, filepath.Join(b.Dir, "images.lock"), nil)
	if err != nil {
		return "", err
	}
	defer unlock()
	if touch(out) {
		return out, nil
	}
	base := filepath.Join(b.Dir, "programs-"+programs+".cpio")
	if !touch(base) {
		if err := b.programs(ctx, guests, agent, base); err != nil {
			return "", fmt.Errorf("building the guest's programs: %w", err)
		}
	}
	if err := b.join(ctx, guests, base, k, out); err != nil {
		return "", fmt.Errorf("building the image for %s: %w", k.Release, err)
	}
	return out, b.prune()
}

// programs builds init and the agent and packs them.
func (b *Builder) programs(ctx context.Context, guests, agent, out string) error {
	start := time.Now()
	b.printf("guest image: building u-root's init and the agent")
	tmp, err := os.MkdirTemp(b.Dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	bin := filepath.Join(tmp, "agent")
	if err := goTool(ctx, guests, "build", "-trimpath", "-ldflags=-s -w", "-o", bin, agent); err != nil {
		return err
	}
	archive := filepath.Join(tmp, "out.cpio")
	err = goTool(ctx, guests, "tool", "u-root", "-build=binary", "-tmp-dir", filepath.Join(tmp, "u-root"),
		"-defaultsh=", "-skip-ldd", "-uinitcmd=/"+agentPath, "-files", bin+":"+agentPath, "-o", archive,
		"github.com/u-root/u-root/cmds/core/init")
	if err != nil {
		return err
	}
	if err := os.Rename(archive, out); err != nil {
		return err
	}
	b.printf("guest image: built in %.0f s", time.Since(start).Seconds())
	return nil
}

// join packs the kernel's modules and puts them behind the programs.
func (b *Builder) join(ctx context.Context, guests, base string, k fetch.Kernel, out string) error {
	tmp, err := os.MkdirTemp(b.Dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	parts := []string{base}
	if k.Modules != "" {
		mods := filepath.Join(tmp, "modules.cpio")
		err := goTool(ctx, guests, "tool", "u-root", "-nocmd", "-base=/dev/null", "-tmp-dir", filepath.Join(tmp, "u-root"),
			"-initcmd=", "-uinitcmd=", "-defaultsh=", "-skip-ldd", "-files", k.Modules+":lib/modules/"+k.Release, "-o", mods)
		if err != nil {
			return err
		}
		parts = append(parts, mods)
	}
	joined := filepath.Join(tmp, "out.cpio")
	if err := concat(joined, parts...); err != nil {
		return err
	}
	return os.Rename(joined, out)
}

// concat writes the archives one behind the other, each starting at a
// multiple of four bytes, as the format wants it.
func concat(out string, parts ...string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, p := range parts {
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if _, err := f.Write(append(data, make([]byte, -len(data)&3)...)); err != nil {
			return err
		}
	}
	return f.Close()
}

// prune removes images that nobody used for a day.
func (b *Builder) prune() error {
	old, err := filepath.Glob(filepath.Join(b.Dir, "*.cpio"))
	if err != nil {
		return err
	}
	for _, p := range old {
		if info, err := os.Stat(p); err == nil && time.Since(info.ModTime()) > 24*time.Hour {
			os.Remove(p) // one that cannot be removed is only litter
		}
	}
	return nil
}

// touch says whether the file is there, and marks it as used.
func touch(p string) bool {
	now := time.Now()
	return os.Chtimes(p, now, now) == nil
}

func (b *Builder) printf(format string, args ...any) {
	if b.Progress != nil {
		fmt.Fprintf(b.Progress, format+"\n", args...)
	}
}

// goTool runs the go command in the guests module.
func goTool(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	// The guests module stands for itself, whatever the caller works in.
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOFLAGS=", "GOWORK=off")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out.Bytes())
	}
	return nil
}

// hashPrograms names the state of everything the programs are built from.
func hashPrograms(src, guests, agent string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, runtime.Version(), agent)
	source := func(p string) bool { return !strings.HasSuffix(p, "_test.go") }
	if filepath.IsAbs(agent) {
		if _, err := hashTree(h, agent, source); err != nil {
			return "", err
		}
	}
	if _, err := hashTree(h, filepath.Join(src, "tests", "lab", "proto"), source); err != nil {
		return "", err
	}
	return hashTree(h, guests, source)
}

// hashTree adds names and contents of the files below dir and returns the sum
// so far, shortened.
func hashTree(h io.Writer, dir string, use func(string) bool) (string, error) {
	sum := h.(interface{ Sum([]byte) []byte })
	if dir == "" {
		return short(sum.Sum(nil)), nil
	}
	var files []string
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && use(p) {
			files = append(files, p)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	sort.Strings(files)
	for _, p := range files {
		data, err := os.ReadFile(p)
		if err != nil {
			return "", err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %d\n", rel, len(data))
		h.Write(data)
	}
	return short(sum.Sum(nil)), nil
}

func short(sum []byte) string { return hex.EncodeToString(sum[:8]) }

// source finds the project's source tree: the one that holds the working
// folder, else the one this program was built from.
func (b *Builder) source() (string, error) {
	if b.Source != "" {
		return b.Source, nil
	}
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
	return "", errors.New("guest images are built from source: run this inside a checkout of " + Module)
}

func isSource(dir string) bool {
	data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && strings.HasPrefix(string(data), "module "+Module+"\n")
}
