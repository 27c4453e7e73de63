package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// EnvQEMU names a qemu-system-x86_64 to use instead of a fetched one.
const EnvQEMU = "UMBRA_QEMU"

// QEMU is an emulator that can be started.
type QEMU struct {
	Version  string    `json:"version"`
	Packages []Package `json:"packages,omitempty"`

	// Argv is how to start it: the program and the arguments that must come
	// first. An unpacked QEMU is started by its own dynamic loader.
	Argv []string `json:"-"`
	root string   // of an unpacked one

	// Env is added to the environment.
	Env []string `json:"-"`
}

// QEMU returns the emulator: the user's ($UMBRA_QEMU), or the cached one, or
// one that it fetches.
func (c *Cache) QEMU(ctx context.Context) (QEMU, error) {
	if p := os.Getenv(EnvQEMU); p != "" {
		q := QEMU{Argv: []string{p}}
		if err := q.check(ctx); err != nil {
			return QEMU{}, fmt.Errorf("%s=%s: %w", EnvQEMU, p, err)
		}
		return q, nil
	}
	dir := c.path("qemu")
	var q QEMU
	if err := c.make(ctx, "fetching QEMU", dir, &q, nil, func(tmp string) error { return c.fetchQEMU(ctx, tmp, &q) }); err != nil {
		return QEMU{}, err
	}
	q.locate(filepath.Join(dir, "root"))
	return q, nil
}

const (
	qemuPackage = "qemu-system-x86"
	qemuSuite   = trixie + "-backports"
)

func (c *Cache) fetchQEMU(ctx context.Context, tmp string, q *QEMU) (err error) {
	root := filepath.Join(tmp, "out", "root")
	if q.Packages, err = c.fetchTree(ctx, tmp, root, qemuSuite, qemuPackage); err != nil {
		return err
	}
	for _, unused := range []string{"etc", "var"} {
		if err := os.RemoveAll(filepath.Join(root, unused)); err != nil {
			return err
		}
	}
	q.locate(root)
	if err := q.check(ctx); err != nil {
		return err
	}
	q.Version += " (" + versionOf(q.Packages, qemuPackage) + ")"
	return nil
}

// locate fills in how to start a QEMU that was unpacked below root.
func (q *QEMU) locate(root string) {
	const triplet = "x86_64-linux-gnu"
	lib := filepath.Join(root, "usr/lib", triplet)
	q.root = root
	q.Argv = []string{
		filepath.Join(lib, "ld-linux-x86-64.so.2"),
		"--library-path", lib,
		filepath.Join(root, "usr/bin/qemu-system-x86_64"),
		"-L", filepath.Join(root, "usr/share/qemu"),
		"-L", filepath.Join(root, "usr/share/seabios"),
		"-L", filepath.Join(root, "usr/lib/ipxe/qemu"),
	}
	q.Env = []string{"QEMU_MODULE_DIR=" + filepath.Join(lib, "qemu")}
}

// Files lists what an unpacked QEMU needs for the lab's machines: a quarter of it, by names below the folder
// usr of its own.
func (q *QEMU) Files() ([]string, error) {
	if q.root == "" {
		return nil, fmt.Errorf("the files of %s's QEMU are not known: unset it", EnvQEMU)
	}
	return closure(q.root, []string{
		"usr/bin/qemu-system-x86_64", "usr/lib/x86_64-linux-gnu/ld-linux-x86-64.so.2", "usr/share/seabios/bios-256k.bin",
		"usr/share/qemu/kvmvapic.bin", "usr/share/qemu/linuxboot_dma.bin", "usr/share/qemu/pvh.bin",
	})
}

var qemuVersion = regexp.MustCompile(`QEMU emulator version (\S+)`)

// check starts QEMU twice: for its version, and to see the device it is
// wanted for.
func (q *QEMU) check(ctx context.Context) error {
	out, err := q.output(ctx, "--version")
	if err != nil {
		return err
	}
	m := qemuVersion.FindStringSubmatch(out)
	if m == nil {
		return fmt.Errorf("does not look like QEMU: it said %q", strings.TrimSpace(out))
	}
	q.Version = m[1]
	out, err = q.output(ctx, "-machine", "none", "-device", "help")
	if err != nil {
		return err
	}
	if !strings.Contains(out, `"vfio-user-pci"`) {
		return fmt.Errorf("QEMU %s has no vfio-user-pci device: QEMU 10.1 or newer is needed, built for a Linux host", q.Version)
	}
	return nil
}

func (q *QEMU) output(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, q.Argv[0], append(q.Argv[1:len(q.Argv):len(q.Argv)], args...)...)
	cmd.Env = append(os.Environ(), q.Env...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return string(out), err
}
