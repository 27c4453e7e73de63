package fetch

import (
	"context"
	"path/filepath"
)

// Prometheus returns the folder with Debian's prometheus and promtool, which the tests of the package need.
func (c *Cache) Prometheus(ctx context.Context) (string, error) {
	root, err := c.debian(ctx, "fetching Prometheus", "prometheus", bookworm, "prometheus")
	return filepath.Join(root, "usr/bin"), err
}

// Systemd returns the folder of a Debian 13 with systemd as its init and with what installs packages.
func (c *Cache) Systemd(ctx context.Context) (string, error) {
	return c.debian(ctx, "fetching Debian with systemd", "systemd", trixie,
		"base-files", "coreutils", "dash", "diffutils", "dpkg", "grep", "libc-bin", "mount", "sed", "systemd", "tar", "util-linux")
}

// debian returns a folder with packages of a suite, and all that they depend on.
func (c *Cache) debian(ctx context.Context, what, name, suite string, packages ...string) (root string, err error) {
	var stamp struct {
		Packages []Package `json:"packages"`
	}
	dir := c.path(name)
	err = c.make(ctx, what, dir, &stamp, packages, func(tmp string) (err error) {
		stamp.Packages, err = c.fetchTree(ctx, tmp, filepath.Join(tmp, "out", "root"), suite, packages...)
		return err
	})
	return filepath.Join(dir, "root"), err
}
