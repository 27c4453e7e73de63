// Package image builds the initramfs a lab guest boots into: u-root's init,
// which starts the guest agent, and the kernel modules the agent loads.
//
// u-root and the agent come from the module tests/guests and are built with
// the Go toolchain of this machine, without cgo. An image is three cpio
// archives in one file, as the kernel accepts them: init, agent and modules.
// Each is named by a hash of what went into it, so that a change builds again
// what it touches and nothing else.
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
	"hash"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
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
	parts, err := b.parts(src, k)
	if err != nil {
		return "", err
	}
	name := k.Release
	for _, p := range parts {
		name += "-" + p.hash
	}
	out := filepath.Join(b.Dir, name+".cpio")
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
	if err := b.build(ctx, filepath.Join(src, "tests", "guests"), parts, out); err != nil {
		return "", fmt.Errorf("building the guest image for %s: %w", k.Release, err)
	}
	return out, b.prune()
}

// part is one of the archives in an image.
type part struct {
	name string
	hash string // of all that goes into it
	// args are u-root's for it; tmp is a folder to build in, dir the guests module.
	args func(ctx context.Context, dir, tmp string) ([]string, error)
}

// bare makes u-root pack nothing but the files it is told.
var bare = []string{"-nocmd", "-base=/dev/null", "-initcmd=", "-uinitcmd=", "-defaultsh=", "-skip-ldd"}

func (b *Builder) parts(src string, k fetch.Kernel) ([]part, error) {
	guests := filepath.Join(src, "tests", "guests")
	agent := b.Agent
	if agent == "" {
		agent = DefaultAgent
	}
	source := func(p string) bool { return !strings.HasSuffix(p, "_test.go") }

	init := newHash("init")
	agentHash := newHash("agent", agent)
	modules := newHash("modules")
	for _, f := range []string{"go.mod", "go.sum"} {
		init.add(filepath.Join(guests, f), source)
	}
	agentHash.add(guests, source)
	agentHash.add(filepath.Join(src, "tests", "lab", "proto"), source)
	if filepath.IsAbs(agent) {
		agentHash.add(agent, source)
	}
	if k.Modules != "" {
		modules.add(k.Modules, func(string) bool { return true })
	}
	if err := errors.Join(init.err, agentHash.err, modules.err); err != nil {
		return nil, err
	}

	parts := []part{{
		name: "init", hash: init.short(),
		args: func(context.Context, string, string) ([]string, error) {
			return []string{"-build=binary", "-defaultsh=", "-skip-ldd", "-uinitcmd=/" + agentPath, "github.com/u-root/u-root/cmds/core/init"}, nil
		},
	}, {
		name: "agent", hash: agentHash.short(),
		args: func(ctx context.Context, dir, tmp string) ([]string, error) {
			bin := filepath.Join(tmp, "agent")
			err := goTool(ctx, dir, "build", "-trimpath", "-ldflags=-s -w", "-o", bin, agent)
			return append(bare[:len(bare):len(bare)], "-files", bin+":"+agentPath), err
		},
	}}
	if k.Modules != "" {
		parts = append(parts, part{
			name: "modules", hash: modules.short(),
			args: func(context.Context, string, string) ([]string, error) {
				return append(bare[:len(bare):len(bare)], "-files", k.Modules+":lib/modules/"+k.Release), nil
			},
		})
	}
	return parts, nil
}

// build makes the parts that are not there yet and joins them.
func (b *Builder) build(ctx context.Context, guests string, parts []part, out string) error {
	tmp, err := os.MkdirTemp(b.Dir, "build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	var files []string
	for _, p := range parts {
		file := filepath.Join(b.Dir, p.name+"-"+p.hash+".cpio")
		files = append(files, file)
		if touch(file) {
			continue
		}
		b.printf("guest image: building %s", p.name)
		args, err := p.args(ctx, guests, tmp)
		if err != nil {
			return err
		}
		archive := filepath.Join(tmp, p.name+".cpio")
		args = append([]string{"tool", "u-root", "-tmp-dir", filepath.Join(tmp, "u-root"), "-o", archive}, args...)
		if err := goTool(ctx, guests, args...); err != nil {
			return err
		}
		if err := os.Rename(archive, file); err != nil {
			return err
		}
	}
	joined := filepath.Join(tmp, "image.cpio")
	if err := concat(joined, files...); err != nil {
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

// prune removes what nobody used for two hours: a machine needs its image only to
// start, and building one again takes seconds.
func (b *Builder) prune() error {
	old, err := filepath.Glob(filepath.Join(b.Dir, "*.cpio"))
	if err != nil {
		return err
	}
	for _, p := range old {
		if info, err := os.Stat(p); err == nil && time.Since(info.ModTime()) > 2*time.Hour {
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

// treeHash names the state of files.
type treeHash struct {
	h   hash.Hash
	err error // the first one
}

// newHash starts a hash with the Go version, which builds differently.
func newHash(words ...string) *treeHash {
	t := &treeHash{h: sha256.New()}
	fmt.Fprintln(t.h, runtime.Version(), words)
	return t
}

// add takes in names and contents of the files that use accepts, at or below
// root.
func (t *treeHash) add(root string, use func(string) bool) {
	if t.err != nil {
		return
	}
	t.err = filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() || !use(p) {
			return err
		}
		data, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		fmt.Fprintf(t.h, "%q %d\n", rel, len(data))
		t.h.Write(data)
		return nil
	})
}

func (t *treeHash) short() string { return hex.EncodeToString(t.h.Sum(nil)[:8]) }

// FindSource fails if there is no source tree to build guest images from.
func (b *Builder) FindSource() error {
	_, err := b.source()
	return err
}

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
