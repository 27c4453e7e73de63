package fetch

import (
	"context"
	"path/filepath"
)

// Prometheus returns the folder with Debian's prometheus and promtool, which the tests of the package need.
func (c *Cache) Prometheus(ctx context.Context) (string, error) {
	const name = "prometheus"
	var stamp struct {
		Packages []Package `json:"packages"`
	}
	dir := c.path(name)
	err := c.make(ctx, "Prometheus", dir, &stamp, []string{name}, func(tmp string) (err error) {
		stamp.Packages, err = c.fetchTree(ctx, tmp, filepath.Join(tmp, "out", "root"), bookworm, name)
		return err
	})
	return filepath.Join(dir, "root/usr/bin"), err
}
