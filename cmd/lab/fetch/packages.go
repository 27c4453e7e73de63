package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Package is one package that was unpacked.
type Package struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// versionOf is the version of one of the packages, "" if it is not there.
func versionOf(pkgs []Package, name string) string {
	if i := slices.IndexFunc(pkgs, func(p Package) bool { return p.Name == name }); i >= 0 {
		return pkgs[i].Version
	}
	return ""
}

// The suites of packages that run, but for those of libvfio-user.
var binaries = [][3]string{{"deb", bookworm, "main"}, {"deb", trixie, "main"}, {"deb", trixie + "-backports", "main"}}

// archive returns the folder of apt's state for a suite, and the suites that it knows.
func archive(suite string) (root string, sources [][3]string) {
	if suite == sid {
		return "apt-" + sid, [][3]string{{"deb", sid, "main"}}
	}
	return "apt", binaries
}

// fetchTree unpacks packages of a suite with all that they depend on below root, but for
// documents, and returns them. It downloads into tmp.
func (c *Cache) fetchTree(ctx context.Context, tmp, root, suite string, names ...string) (pkgs []Package, err error) {
	state, sources := archive(suite)
	a, err := c.openApt(ctx, state, sources...)
	if err != nil {
		return nil, err
	}
	debs := filepath.Join(tmp, "debs")
	install := []string{"install", "-q", "-y", "--no-install-recommends", "--download-only", "-t", suite, "-o", "Dir::Cache::archives=" + debs}
	err = a.refreshed(ctx, func() error {
		err := os.RemoveAll(debs) // apt does not list what is there already
		if err == nil {
			err = os.MkdirAll(filepath.Join(debs, "partial"), 0o755)
		}
		if err != nil {
			return err
		}
		pkgs, err = a.get(ctx, debs, append(install, names...)...)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := c.unpack(ctx, debs, root); err != nil {
		return nil, err
	}
	for _, unused := range []string{"usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info"} {
		if err := os.RemoveAll(filepath.Join(root, unused)); err != nil {
			return nil, err
		}
	}
	return pkgs, nil
}

// get has apt-get download packages into dir, says how it goes, and returns them.
func (a *apt) get(ctx context.Context, dir string, command ...string) ([]Package, error) {
	out, err := a.run(ctx, dir, "apt-get", append(slices.Clone(command), "--print-uris")...)
	if err != nil {
		return nil, err
	}
	pkgs, size := parseURIs(out)
	a.c.printf("packages: %d, %s", len(pkgs), mb(size))
	stop := a.c.watch(dir, size)
	defer stop()
	_, err = a.run(ctx, dir, "apt-get", command...)
	return pkgs, err
}

// uriLine is a file of a package: its name, version and size.
var uriLine = regexp.MustCompile(`(?m)^'[^']*' ([^_ ]+)_(\S+?)((?:_(?:amd64|all)\.deb|\.dsc)?) (\d+)`)

// parseURIs reads what apt-get --print-uris lists: the packages, and the size of all files.
func parseURIs(out string) (pkgs []Package, size int64) {
	for _, m := range uriLine.FindAllStringSubmatch(out, -1) {
		n, _ := strconv.ParseInt(m[4], 10, 64) // only for people
		if size += n; m[3] != "" {
			pkgs = append(pkgs, Package{Name: m[1], Version: strings.ReplaceAll(m[2], "%3a", ":")})
		}
	}
	return pkgs, size
}

// watch prints how much has arrived in dir, every few seconds, until stop.
func (c *Cache) watch(dir string, size int64) (stop func()) {
	if c.Progress == nil {
		return func() {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		t := time.NewTicker(3 * time.Second)
		defer t.Stop()
		for {
			select {
			case <-done:
				return
			case <-t.C:
				c.printf("  %s of %s", mb(treeSize(dir)), mb(size))
			}
		}
	}()
	return func() { close(done); <-ended }
}

// treeSize is the size of the files below dir. Those that move away meanwhile do not count.
func treeSize(dir string) (n int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

func mb(n int64) string { return fmt.Sprintf("%.1f MB", float64(n)/1e6) }

// unpack extracts each package in debs below root.
func (c *Cache) unpack(ctx context.Context, debs, root string) error {
	c.printf("unpacking")
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	if len(files) == 0 {
		return fmt.Errorf("apt-get succeeded but left no package in %s", debs)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := c.tool(ctx, "", nil, "dpkg-deb", "-x", f, root); err != nil {
			return err
		}
		if err := os.Remove(f); err != nil {
			return err
		}
	}
	return nil
}

// tool runs a program and returns its standard output; its error holds the
// end of what the program said.
func (c *Cache) tool(ctx context.Context, dir string, env []string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), append(env, "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive")...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // apt stops its helpers
	cmd.WaitDelay = 5 * time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return "", fmt.Errorf("%s: %w", name, context.Cause(ctx))
		}
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaint(stderr.String()+stdout.String()))
	}
	return stdout.String(), nil
}

var aptError = regexp.MustCompile(`(?m)^(E|Err):.*$`)

// complaint picks the lines that say what went wrong, or the last ones.
func complaint(output string) string {
	lines := aptError.FindAllString(output, -1)
	if lines == nil {
		lines = strings.Split(strings.TrimRight(output, "\n"), "\n")
		lines = lines[max(0, len(lines)-10):]
	}
	return strings.Join(lines, "\n")
}

// firstMatch is the first file below root that a pattern matches, "" if there is none.
func firstMatch(root string, patterns ...string) string {
	for _, p := range patterns {
		if found, _ := filepath.Glob(filepath.Join(root, p)); len(found) > 0 {
			return found[0]
		}
	}
	return ""
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return !errors.Is(err, fs.ErrNotExist)
}
