// Package fetch gets the parts of a lab machine: a QEMU with a vfio-user client,
// Debian's kernels with the modules that a guest needs, and, on request, the library
// libvfio-user.
//
// Everything comes from a Debian mirror by the machine's own apt, into a cache
// folder. Nothing is installed, no root is needed, and the machine's apt is
// only read: the package lists, the (empty) list of installed packages, the
// configuration and the sources are the cache's own. Packages are trusted only
// with the signature of Debian's archive keys. QEMU is started through the
// dynamic loader that was unpacked with it, so the machine may be any Linux on
// amd64 with apt: Debian 12, Debian 13, Ubuntu.
//
// The package owns the cache folder's subfolders apt, apt-src, keyring, qemu,
// guests, libvfio-user and tmp. One lock file, fetch.lock, is held while any of them is written;
// what is complete is put in place by a rename, and is read without a lock. No
// goroutine outlives a call.
package fetch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// EnvCache names the folder to keep everything in. Without it, it is "umbra"
// in the user's cache folder ($XDG_CACHE_HOME, or ~/.cache).
const EnvCache = "UMBRA_CACHE"

// Cache is a folder of fetched things.
type Cache struct {
	Dir      string
	Progress io.Writer // lines for a person who waits; nil for none
}

// DefaultDir is the cache folder that the environment asks for.
func DefaultDir() (string, error) {
	if d := os.Getenv(EnvCache); d != "" {
		return filepath.Abs(d)
	}
	d, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache folder: %w; set %s", err, EnvCache)
	}
	return filepath.Join(d, "umbra"), nil
}

func (c *Cache) path(elem ...string) string {
	return filepath.Join(append([]string{c.Dir}, elem...)...)
}

func (c *Cache) printf(format string, args ...any) {
	if c.Progress != nil {
		fmt.Fprintf(c.Progress, format+"\n", args...)
	}
}

// stampFile stands in each finished folder and describes it.
const stampFile = "stamp.json"

// stamped reads the description of a finished folder, if there is one and it has these packages.
func stamped(dir string, v any, packages []string) bool {
	data, err := os.ReadFile(filepath.Join(dir, stampFile))
	var has struct{ Packages []Package }
	if err != nil || json.Unmarshal(data, &has) != nil {
		return false
	}
	lacks := func(name string) bool { return versionOf(has.Packages, name) == "" }
	return !slices.ContainsFunc(packages, lacks) && json.Unmarshal(data, v) == nil
}

// make sees to a folder with these packages, and reads its description, stamp. If there is none, or
// one that lacks packages, fill fills a new one and completes the stamp. what says to people what is done: "fetching QEMU".
func (c *Cache) make(ctx context.Context, what, dir string, stamp any, packages []string, fill func(tmp string) error) error {
	if stamped(dir, stamp, packages) {
		return nil
	}
	unlock, err := Lock(ctx, c.path("fetch.lock"), func() { c.printf("waiting for another process that fills %s", c.Dir) })
	if err != nil {
		return err
	}
	defer unlock()
	if stamped(dir, stamp, packages) { // another process was quicker
		return nil
	}
	// We hold the lock, so a process that died left whatever is in tmp.
	tmp := c.path("tmp")
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	defer c.forgetIndexes()
	out := filepath.Join(tmp, "out")
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	start := time.Now()
	c.printf("%s", what)
	if err := fill(tmp); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	data, err := json.MarshalIndent(stamp, "", "\t")
	if err != nil {
		return err
	}
	err = os.WriteFile(filepath.Join(out, stampFile), append(data, '\n'), 0o644)
	if err = errors.Join(err, os.RemoveAll(dir), os.MkdirAll(filepath.Dir(dir), 0o755)); err != nil {
		return err
	}
	if err := os.Rename(out, dir); err != nil {
		return err
	}
	c.printf("done in %.0f s: %s (%s)", time.Since(start).Seconds(), dir, mb(treeSize(dir)))
	return nil
}

// forgetIndexes removes apt's indexes of its lists, which are larger than the lists.
func (c *Cache) forgetIndexes() {
	indexes, _ := filepath.Glob(c.path("apt*", "cache", "*.bin"))
	for _, f := range indexes {
		os.Remove(f)
	}
}
