package fetch

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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

// Mirror is where Debian's packages are.
type Mirror struct {
	Main     string // archive with the release and backports suites
	Security string // archive with the security suites; "" for none
	From     string // who said so, for people
}

// The Debian releases packages are taken from.
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

// source is one entry of sources.list, or one stanza of a .sources file.
type source struct {
	uris, suites, components []string
	signedBy                 string
	file                     string
}

// debianSuites are the names by which a Debian machine may know its suites.
var debianSuites = []string{
	"bullseye", bookworm, trixie, "forky", "duke", "sid",
	"oldoldstable", "oldstable", "stable", "testing", "unstable",
}

// pickMirror finds the archive addresses among a machine's sources. Others
// than Debian use its suite names too; an address that ends in the archive's
// own name, or an entry signed by Debian's keyring, is preferred. A wrong pick
// cannot do harm: what it serves would not carry Debian's signature.
func pickMirror(sources []source) (Mirror, bool) {
	var m Mirror
	best, bestSec := 0, 0
	for _, s := range sources {
		if !slices.Contains(s.components, "main") {
			continue
		}
		for _, uri := range s.uris {
			uri = strings.TrimRight(uri, "/")
			if strings.HasPrefix(uri, "cdrom:") {
				continue
			}
			signed := 0
			if strings.Contains(s.signedBy, "debian-archive") {
				signed = 1
			}
			for _, suite := range s.suites {
				release, security := strings.CutSuffix(suite, "-security")
				if !slices.Contains(debianSuites, strings.TrimSuffix(strings.TrimSuffix(release, "-updates"), "-backports")) {
					continue
				}
				if security {
					if score := 1 + 2*signed + named(uri, "debian-security"); score > bestSec {
						bestSec, m.Security = score, uri
					}
					continue
				}
				if score := 1 + 2*signed + named(uri, "debian"); score > best {
					best, m.Main, m.From = score, uri, s.file
				}
			}
		}
	}
	return m, best > 0
}

func named(uri, name string) int {
	if path.Base(uri) == name || strings.HasPrefix(uri, "mirror+file:") && strings.Contains(uri, "debian") {
		return 1
	}
	return 0
}

// readSources reads all of /etc/apt's sources, given as a file system.
func readSources(etcApt fs.FS) ([]source, error) {
	files := []string{"sources.list"}
	for _, pattern := range []string{"sources.list.d/*.list", "sources.list.d/*.sources"} {
		more, err := fs.Glob(etcApt, pattern)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	var out []source
	for _, f := range files {
		data, err := fs.ReadFile(etcApt, f)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			continue
		}
		if err != nil {
			return nil, err
		}
		parse := parseList
		if strings.HasSuffix(f, ".sources") {
			parse = parseDeb822
		}
		for _, s := range parse(data) {
			s.file = "/etc/apt/" + f
			out = append(out, s)
		}
	}
	return out, nil
}

// parseList reads the one-line format: deb [options] uri suite component...
func parseList(data []byte) []source {
	var out []source
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), "deb")
		if !ok || rest == "" || (rest[0] != ' ' && rest[0] != '\t') {
			continue
		}
		var s source
		rest = strings.TrimSpace(rest)
		if opts, after, ok := strings.Cut(rest, "]"); ok && strings.HasPrefix(opts, "[") {
			rest = after
			for o := range strings.FieldsSeq(opts[1:]) {
				if v, ok := strings.CutPrefix(o, "signed-by="); ok {
					s.signedBy = v
				}
			}
		}
		f := strings.Fields(rest)
		if len(f) < 3 {
			continue
		}
		s.uris, s.suites, s.components = f[:1], f[1:2], f[2:]
		out = append(out, s)
	}
	return out
}

// parseDeb822 reads the stanza format of .sources files.
func parseDeb822(data []byte) []source {
	var out []source
	fields := make(map[string]string)
	var last string
	flush := func() {
		enabled := strings.ToLower(fields["enabled"])
		if slices.Contains(strings.Fields(fields["types"]), "deb") && enabled != "no" && enabled != "false" {
			out = append(out, source{
				uris:       strings.Fields(fields["uris"]),
				suites:     strings.Fields(fields["suites"]),
				components: strings.Fields(fields["components"]),
				signedBy:   strings.TrimSpace(fields["signed-by"]),
			})
		}
		clear(fields)
		last = ""
	}
	sc := bufio.NewScanner(bytes.NewReader(data))
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.TrimSpace(line) == "":
			flush()
		case line[0] == '#':
		case line[0] == ' ' || line[0] == '\t':
			fields[last] += " " + strings.TrimSpace(line)
		default:
			key, value, _ := strings.Cut(line, ":")
			last = strings.ToLower(strings.TrimSpace(key))
			fields[last] = strings.TrimSpace(value)
		}
	}
	flush()
	return out
}

func hostSources() fs.FS { return os.DirFS("/etc/apt") }
