package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Environment variables that say where packages come from.
const (
	EnvMirror   = "UMBRA_DEBIAN_MIRROR"   // base address of a Debian mirror: what stands before "/dists/trixie"
	EnvSecurity = "UMBRA_DEBIAN_SECURITY" // the same for security updates; optional
	EnvKeyring  = "UMBRA_DEBIAN_KEYRING"  // file with the Debian archive's public keys
)

// Mirror is where Debian's packages are.
type Mirror struct {
	Main     string // archive with the release and backports suites
	Security string // archive with the security suites; "" for none
	From     string // who said so, for people
}

// The Debian releases that packages come from.
const (
	bookworm = "bookworm" // Debian 12: kernel 6.1
	trixie   = "trixie"   // Debian 13: kernel 6.12; newer kernels and QEMU in its backports
)

// findMirror asks the environment, then the machine's own apt configuration.
// Its error says what to set: no address of a mirror is built in.
func findMirror(etcApt fs.FS, env func(string) string) (Mirror, error) {
	if m := env(EnvMirror); m != "" {
		if !strings.Contains(m, ":/") {
			return Mirror{}, fmt.Errorf("%s=%q is not an address: it needs a scheme, as in http://HOST/debian", EnvMirror, m)
		}
		return Mirror{Main: strings.TrimRight(m, "/"), Security: strings.TrimRight(env(EnvSecurity), "/"), From: EnvMirror}, nil
	}
	sources, err := readSources(etcApt)
	if err != nil {
		return Mirror{}, fmt.Errorf("reading apt's sources: %w", err)
	}
	m, ok := pickMirror(sources)
	if !ok {
		return Mirror{}, fmt.Errorf("apt on this machine names no Debian mirror; set %s to the base address of one (what stands before /dists/%s) and run again", EnvMirror, trixie)
	}
	if s := env(EnvSecurity); s != "" {
		m.Security = strings.TrimRight(s, "/")
	}
	return m, nil
}

// debianSuites are the names by which a Debian machine may know its suites.
var debianSuites = []string{
	"bullseye", bookworm, trixie, "forky", "duke", "sid",
	"oldoldstable", "oldstable", "stable", "testing", "unstable",
}

// source is an address in apt's configuration, with the suites there.
type source struct {
	uri    string
	suites []string
	file   string
}

// pickMirror finds the archive addresses among a machine's sources. Others than Debian
// use its suite names too, so an address that ends in the archive's own name is
// preferred. A wrong pick is harmless: its packages would lack Debian's signature.
func pickMirror(sources []source) (m Mirror, ok bool) {
	best, bestSecurity := 0, 0
	for _, s := range sources {
		for _, suite := range s.suites {
			release, security := strings.CutSuffix(suite, "-security")
			release, _, _ = strings.Cut(release, "-") // trixie-updates, trixie-backports
			if !slices.Contains(debianSuites, release) {
				continue
			}
			score := 1
			if path.Base(s.uri) == "debian" || path.Base(s.uri) == "debian-security" || strings.HasPrefix(s.uri, "mirror+file:") {
				score = 2
			}
			switch {
			case security && score > bestSecurity:
				bestSecurity, m.Security = score, s.uri
			case !security && score > best:
				best, m.Main, m.From = score, s.uri, s.file
			}
		}
	}
	return m, best > 0
}

// readSources reads apt's sources, given /etc/apt as a file system.
func readSources(etcApt fs.FS) ([]source, error) {
	var out []source
	for _, pattern := range []string{"sources.list", "sources.list.d/*.list", "sources.list.d/*.sources"} {
		files, err := fs.Glob(etcApt, pattern)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			data, err := fs.ReadFile(etcApt, f)
			if errors.Is(err, fs.ErrPermission) {
				continue
			}
			if err != nil {
				return nil, err
			}
			text := comment.ReplaceAllString(string(data), "")
			entries := strings.Split(text, "\n") // one a line
			if strings.HasSuffix(f, ".sources") {
				entries = regexp.MustCompile(`\n\s*\n`).Split(text, -1)
			}
			for _, e := range entries {
				out = append(out, parseEntry(e, "/etc/apt/"+f)...)
			}
		}
	}
	return out, nil
}

// Both formats name the same things: packages of type deb, addresses, suites, and the
// component main. Words of one format are ignored in the other.
var (
	comment = regexp.MustCompile(`(?m)(^#.*\n?| #.*$)`)
	address = regexp.MustCompile(`^[a-z+]+:/`)
	off     = regexp.MustCompile(`(?mi)^Enabled:\s*(no|false)\b`)
)

func parseEntry(text, file string) (out []source) {
	words := strings.Fields(text)
	if off.MatchString(text) || !slices.Contains(words, "deb") || !slices.Contains(words, "main") {
		return nil
	}
	for _, w := range words {
		if address.MatchString(w) && !strings.HasPrefix(w, "cdrom:") {
			out = append(out, source{uri: strings.TrimRight(w, "/"), suites: words, file: file})
		}
	}
	return out
}

func hostSources() fs.FS { return os.DirFS("/etc/apt") }
