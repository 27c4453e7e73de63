package fetch

import (
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
)

// Environment variables that say where packages come from.
const (
	EnvMirror   = "UMBRA_DEBIAN_MIRROR"   // base address of a Debian mirror: what stands before "/dists/trixie"
	EnvSecurity = "UMBRA_DEBIAN_SECURITY" // the same for security updates; optional
	EnvKeyring  = "UMBRA_DEBIAN_KEYRING"  // file with the Debian archive's public keys
)

// mirror is where Debian's packages are.
type mirror struct {
	main     string // archive with the release and backports suites
	security string // archive with the security suites; "" for none
	from     string // who said so, for people
}

// The Debian releases that packages come from.
const (
	bookworm = "bookworm" // Debian 12: kernel 6.1
	trixie   = "trixie"   // Debian 13: kernel 6.12; newer kernels and QEMU in its backports
)

// findMirror asks the environment, then the machine's own apt for its sources. Its error says what
// to set: no address of a mirror is built in.
func (c *Cache) findMirror(ctx context.Context) (m mirror, err error) {
	if own := os.Getenv(EnvMirror); own != "" {
		if !strings.Contains(own, ":/") {
			return m, fmt.Errorf("%s=%q is not an address: it needs a scheme, as in http://HOST/debian", EnvMirror, own)
		}
		m = mirror{main: strings.TrimRight(own, "/"), from: EnvMirror}
	} else {
		targets, err := c.tool(ctx, "", nil, "apt-get", "indextargets", "--no-release-info", "--format", "$(REPO_URI) $(RELEASE) $(COMPONENT)", "Created-By: Packages")
		if err != nil {
			return m, fmt.Errorf("reading apt's sources: %w", err)
		}
		if m = pickMirror(targets); m.main == "" {
			return m, fmt.Errorf("apt on this machine names no Debian mirror; set %s to the base address of one (what stands before /dists/%s) and run again", EnvMirror, trixie)
		}
	}
	if s := os.Getenv(EnvSecurity); s != "" {
		m.security = strings.TrimRight(s, "/")
	}
	return m, nil
}

// debianSuites are the names by which a Debian machine may know its suites.
var debianSuites = []string{
	"bullseye", bookworm, trixie, "forky", "duke", "sid",
	"oldoldstable", "oldstable", "stable", "testing", "unstable",
}

// pickMirror finds the archives' addresses among a machine's sources: lines of address, suite and
// component. Others than Debian use its suite names too, so an address that ends in the archive's own
// name is preferred. A wrong pick is harmless: its packages would lack Debian's signature.
func pickMirror(targets string) (m mirror) {
	best, bestSecurity := 0, 0
	for line := range strings.Lines(targets) {
		f := strings.Fields(line)
		if len(f) != 3 || f[2] != "main" || strings.HasPrefix(f[0], "cdrom:") {
			continue
		}
		uri := strings.TrimRight(f[0], "/")
		release, security := strings.CutSuffix(f[1], "-security")
		release, _, _ = strings.Cut(release, "-") // trixie-updates, trixie-backports
		if !slices.Contains(debianSuites, release) {
			continue
		}
		score := 1
		if path.Base(uri) == "debian" || path.Base(uri) == "debian-security" || strings.HasPrefix(uri, "mirror+file:") {
			score = 2
		}
		switch {
		case security && score > bestSecurity:
			bestSecurity, m.security = score, uri
		case !security && score > best:
			best, m.main, m.from = score, uri, "apt's sources"
		}
	}
	return m
}
