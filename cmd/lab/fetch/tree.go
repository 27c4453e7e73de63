package fetch

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// fetchTree unpacks packages of a suite with all that they depend on below root, but for
// documents, and returns them. It downloads into tmp.
func (c *Cache) fetchTree(ctx context.Context, tmp, root, what, suite string, names ...string) (pkgs []Package, err error) {
	a, err := c.openApt(ctx)
	if err != nil {
		return nil, err
	}
	debs := filepath.Join(tmp, "debs")
	if err := os.MkdirAll(filepath.Join(debs, "partial"), 0o755); err != nil {
		return nil, err
	}
	install := []string{
		"install", "-q", "-y", "--no-install-recommends", "-t", suite,
		"-o", "Dir::Cache::archives=" + debs,
	}
	err = a.refreshed(ctx, func() error {
		out, err := a.run(ctx, "", "apt-get", append(append(install, "--print-uris"), names...)...)
		if err != nil {
			return err
		}
		pkgs = parseURIs(out)
		var total int64
		for _, p := range pkgs {
			total += p.Size
		}
		c.printf("%s %s and what it needs: %d packages, %s", what, versionOf(pkgs, names[0]), len(pkgs), mb(total))
		stop := c.watch(debs, total)
		defer stop()
		_, err = a.run(ctx, "", "apt-get", append(append(install, "--download-only"), names...)...)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.printf("%s: unpacking", what)
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

// versionOf is the version of one of the packages, "" if it is not there.
func versionOf(pkgs []Package, name string) string {
	for _, p := range pkgs {
		if p.Name == name {
			return p.Version
		}
	}
	return ""
}

var uriLine = regexp.MustCompile(`^'[^']*' (\S+)_(\S+)_(?:amd64|all)\.deb (\d+)`)

// parseURIs reads what apt-get --print-uris lists.
func parseURIs(out string) []Package {
	var pkgs []Package
	for line := range strings.Lines(out) {
		m := uriLine.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		size, err := strconv.ParseInt(m[3], 10, 64)
		if err != nil {
			continue
		}
		pkgs = append(pkgs, Package{Name: m[1], Version: strings.ReplaceAll(m[2], "%3a", ":"), Size: size})
	}
	return pkgs
}
