package shim

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// sources are the preloaded library, and what programs of ours include.
//
//go:embed preload/shim.c programs/*.h programs/*.c
var sources embed.FS

// Host is where programs run: a Debian system in a folder, and a folder of work.
type Host struct {
	mesa fetch.Mesa
	work string
	lib  string // the preloaded library, in the Debian system
}

// Packages sees to what a host has, for a version of Mesa: (*fetch.Cache).Mesa, Tools with the tests of
// piglit, or Peers with PoCL.
type Packages func(cache *fetch.Cache, ctx context.Context, version string) (fetch.Mesa, error)

// NewHost sees to packages, and compiles what programs are started with.
func NewHost(ctx context.Context, cache *fetch.Cache, packages Packages, version string) (h *Host, err error) {
	mesa, err := packages(cache, ctx, version)
	if err != nil {
		return nil, err
	}
	h = &Host{mesa: mesa}
	if h.work, err = os.MkdirTemp("", "umbra-shim"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.Close())
		}
	}()
	source, err := sources.ReadFile("preload/shim.c")
	if err != nil {
		return h, err
	}
	h.lib, err = h.gcc(ctx, "libumbra-shim.so", source, "-shared", "-fPIC")
	return h, err
}

// Close removes the folder of work.
func (h *Host) Close() error { return os.RemoveAll(h.work) }

// gcc compiles a source into the work folder, and returns the result's path in the Debian
// system. The machine's own C library may be older than Debian's, not newer.
func (h *Host) gcc(ctx context.Context, name string, source []byte, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "gcc", append([]string{"-O2", "-Wall", "-x", "c", "-o", filepath.Join(h.work, name), "-", "-x", "none"}, args...)...)
	cmd.Stdin = bytes.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("gcc: %w\n%s", err, out)
	}
	return path.Join(fetch.WorkDir, name), nil
}

// Compile compiles a program of ours, for OpenCL or OpenGL.
func (h *Host) Compile(ctx context.Context, file string) (string, error) {
	for _, name := range []string{"cl.h", "gl.h"} {
		header, err := sources.ReadFile("programs/" + name)
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(h.work, name), header, 0o644); err != nil {
			return "", err
		}
	}
	name := strings.TrimSuffix(filepath.Base(file), ".c")
	return path.Join(fetch.WorkDir, name), h.mesa.Compile(ctx, file, filepath.Join(h.work, name), "-I"+h.work)
}

// compileOurs compiles a program of this package's, by its name.
func (h *Host) compileOurs(ctx context.Context, name string) (string, error) {
	source, err := sources.ReadFile("programs/" + name + ".c")
	if err != nil {
		return "", err
	}
	file := filepath.Join(h.work, name+".c")
	if err := os.WriteFile(file, source, 0o644); err != nil {
		return "", err
	}
	return h.Compile(ctx, file)
}

// Versions names what the host has.
func (h *Host) Versions() string {
	out := "Mesa " + h.mesa.Version
	for _, p := range h.mesa.Packages {
		if p.Name == "pocl-opencl-icd" {
			out += ", PoCL " + p.Version
		}
	}
	return out
}

// Devices. The first is our card, by the name of Mesa's driver, and the second Mesa's software
// renderer. PoCL is only in a host with fetch.Cache.Peers.
const (
	OurCard  = "nouveau"
	Renderer = "llvmpipe"
	PoCL     = "pocl"
)

// Program is a program to run.
type Program struct {
	Argv   []string // paths in the Debian system
	Env    []string
	Device string // OurCard or another
	Config Config
	Record bool

	Output, Errors io.Writer
}

// ErrMesa says that Mesa did not compile or run a program, or compiled it to what is no instruction.
var ErrMesa = errors.New("a failure of Mesa, not of the card")

// mesasFault matches a line that is said then: see docs/ci.md.
var mesasFault = regexp.MustCompile(`(?m)^.*(no viable spill candidates|only supported with 1 component|unknown nir_|` +
	`shader translation failed|word 0x0[0-3][0-9a-f]{13}0 is no instruction: no form has this opcode).*$`)

// blame adds to the error of a program what it said of Mesa, unless the card ended it for another reason.
func blame(err error, said []byte) error {
	if _, card, ok := bytes.Cut(said, []byte("umbra shim: ")); ok {
		said = card
	}
	if line := mesasFault.Find(said); err != nil && line != nil {
		return fmt.Errorf("%w: %s: %w", ErrMesa, line, err)
	}
	return err
}

// Run runs a program on a card of its own, and returns its recording, also if it failed. Each
// process of it has its own card; the recording is of the last to end. The error names a failure
// of Mesa's compiler.
func (h *Host) Run(ctx context.Context, p Program) (*Recording, error) {
	env := append([]string{"OCL_ICD_VENDORS=rusticl.icd", "RUSTICL_ENABLE=" + p.Device, "MESA_SHADER_CACHE_DISABLE=true"}, p.Env...)
	if p.Device == PoCL {
		env = append(env, "OCL_ICD_VENDORS=pocl.icd", "POCL_CACHE_DIR="+fetch.WorkDir)
	}
	var s *Server
	if p.Device != OurCard {
		env = append(env, "LIBGL_ALWAYS_SOFTWARE=1")
	} else {
		const socket = "card"
		var err error
		if s, err = Listen(filepath.Join(h.work, socket), p.Config, p.Record); err != nil {
			return nil, err
		}
		go s.Serve()
		env = append(env, "UMBRA_SHIM="+path.Join(fetch.WorkDir, socket), "NOUVEAU_CHIPSET=c0", "MESA_LOADER_DRIVER_OVERRIDE=nouveau",
			"LD_PRELOAD="+h.lib+":libnouveau_noop_drm_shim.so")
		if p.Config.Idle {
			env = append(env, "NOUVEAU_DISABLE_FENCES=true") // Mesa would wait for them
		}
	}
	cmd := h.mesa.Command(ctx, h.work, env, p.Argv...)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = p.Output, &said
	if p.Errors != nil {
		cmd.Stderr = io.MultiWriter(p.Errors, &said)
	}
	if p.Output == p.Errors { // one goroutine writes both
		cmd.Stdout = cmd.Stderr
	}
	err := cmd.Run()
	if s != nil {
		err = errors.Join(blame(err, said.Bytes()), s.Close())
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", p.Argv[0], err)
	}
	if s == nil || s.recorder.Load() == nil {
		return nil, err
	}
	r := &s.recorder.Load().Recording
	r.Program, r.Mesa = strings.Join(p.Argv, " "), h.mesa.Version
	return r, err
}
