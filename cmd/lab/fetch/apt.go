package fetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// listsFresh is how long downloaded package lists are used without asking the
// mirror again.
const listsFresh = time.Hour

// apt is the machine's apt with a state of its own below root.
type apt struct {
	c    *Cache
	root string
}

// openApt writes the configuration and sees to the package lists. sources are lines of kind, suite,
// component: {"deb", "trixie", "main"}.
func (c *Cache) openApt(ctx context.Context, root string, sources ...[3]string) (*apt, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is needed to fetch Debian packages: %w; without apt, set %s and %s to files of your own", tool, err, EnvQEMU, EnvKernel)
		}
	}
	m, err := c.findMirror(ctx)
	if err != nil {
		return nil, err
	}
	a := &apt{c: c, root: c.path(root)}
	keyring, err := c.keyring(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.write(ctx, sourcesList(m, keyring, sources)); err != nil {
		return nil, err
	}
	if a.listsAge() > listsFresh {
		c.printf("package lists: %s (from %s)", m.main, m.from)
		if err := a.update(ctx); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// write lays out the state folder and the configuration.
func (a *apt) write(ctx context.Context, sources string) error {
	if strings.ContainsAny(a.root, "\"\n") {
		return fmt.Errorf("the cache folder's path %q holds a quote or a line break, which apt cannot take; set %s", a.root, EnvCache)
	}
	for _, d := range []string{"etc", "lists/partial", "cache/archives/partial", "log"} {
		if err := os.MkdirAll(filepath.Join(a.root, d), 0o755); err != nil {
			return err
		}
	}
	// Lists of other sources would be kept and searched: forget their age.
	if old, _ := os.ReadFile(filepath.Join(a.root, "etc/sources.list")); string(old) != sources {
		os.Remove(a.updatedFile())
	}
	// The machine's own proxy and retry settings hold for this apt too. It may
	// have none, and a machine whose apt-config fails has none that we know.
	host, _ := exec.CommandContext(ctx, "apt-config", "dump").Output()
	for name, text := range map[string]string{
		"status":           "", // nothing is installed
		"etc/sources.list": sources,
		"apt.conf":         aptConf(a.root, string(host)),
	} {
		if err := os.WriteFile(filepath.Join(a.root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// sourcesList names the suites, with those of security updates where there is a mirror of them.
func sourcesList(m mirror, keyring string, sources [][3]string) string {
	var b strings.Builder
	line := func(kind, uri, suite, component string) {
		fmt.Fprintf(&b, "%s [arch=amd64 signed-by=%s] %s %s %s\n", kind, strings.ReplaceAll(keyring, " ", "%20"), uri, suite, component)
	}
	for _, s := range sources {
		line(s[0], m.main, s[1], s[2])
		if m.security != "" && s[0] == "deb" && s[1] != sid && !strings.HasSuffix(s[1], "-backports") {
			line(s[0], m.security, s[1]+"-security", s[2])
		}
	}
	return b.String()
}

var hostSetting = regexp.MustCompile(`(?m)^Acquire::(https?::|Retries |Check-|ForceIPv[46] |Max-ValidTime ).*\n`)

// aptConf keeps apt away from the machine's state. APT_CONFIG is read before
// everything else, so that Dir::Etc here also hides the machine's apt.conf.d
// with its hooks.
func aptConf(root, hostDump string) string {
	const own = `Dir::Etc "ROOT/etc";
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
Dir::State "ROOT";
Dir::State::lists "ROOT/lists";
Dir::State::status "ROOT/status";
Dir::Cache "ROOT/cache";
Dir::Cache::archives "ROOT/cache/archives";
Dir::Log "ROOT/log";
APT::Architecture "amd64";
APT::Architectures "amd64";
// No change of user, so no file needs another owner.
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "3";
// The lists are 20 MB packed, 110 MB unpacked.
Acquire::GzipIndexes "true";
`
	return strings.ReplaceAll(own, "ROOT", root) + strings.Join(hostSetting.FindAllString(hostDump, -1), "")
}

func (a *apt) updatedFile() string { return filepath.Join(a.root, "updated") }

func (a *apt) listsAge() time.Duration {
	info, err := os.Stat(a.updatedFile())
	if err != nil {
		return 1<<63 - 1
	}
	return time.Since(info.ModTime())
}

func (a *apt) update(ctx context.Context) error {
	if _, err := a.run(ctx, "", "apt-get", "update", "-q", "-o", "APT::Update::Error-Mode=any"); err != nil {
		if ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%w\n(the mirror must serve the suites %s, %s and %s-backports, for firmware their component %s; set %s to use another)", err, bookworm, trixie, trixie, nonFree, EnvMirror)
	}
	return os.WriteFile(a.updatedFile(), nil, 0o644)
}

// refreshed runs f, and once more with new lists when it fails on lists that
// were not just downloaded: a mirror drops a package when it takes a newer one.
func (a *apt) refreshed(ctx context.Context, f func() error) error {
	err := f()
	if err == nil || ctx.Err() != nil || a.listsAge() < time.Minute {
		return err
	}
	if uerr := a.update(ctx); uerr != nil {
		return errors.Join(err, uerr)
	}
	return f()
}

// run starts a tool of apt in dir and returns its standard output.
func (a *apt) run(ctx context.Context, dir, name string, args ...string) (string, error) {
	return a.c.tool(ctx, dir, []string{"APT_CONFIG=" + filepath.Join(a.root, "apt.conf")}, name, args...)
}

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
	sid      = "sid"      // what comes next: programs of others for the real card
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

// An address of Debian's main component: it ends in the archive's own name, or is a file that lists
// mirrors, as cloud images have it.
var (
	mainMirror     = regexp.MustCompile(`(?m)^(\S+/debian|mirror\+file:\S*debian\.list)/? \S+ main$`)
	securityMirror = regexp.MustCompile(`(?m)^(\S+/debian-security|mirror\+file:\S*security\.list)/? \S+-security main$`)
)

// pickMirror finds the archives' addresses among a machine's sources: lines of address, suite and
// component. A wrong pick is harmless: its packages would lack Debian's signature.
func pickMirror(targets string) (m mirror) {
	if found := mainMirror.FindStringSubmatch(targets); found != nil {
		m.main, m.from = found[1], "apt's sources"
	}
	if found := securityMirror.FindStringSubmatch(targets); found != nil {
		m.security = found[1]
	}
	return m
}

// keyring finds the public keys of Debian's archive. A machine that is not
// Debian (Ubuntu) has them in a package of its own archive, which its apt can
// download without installing it.
func (c *Cache) keyring(ctx context.Context) (string, error) {
	if k := os.Getenv(EnvKeyring); k != "" {
		if _, err := os.Stat(k); err != nil {
			return "", fmt.Errorf("%s: %w", EnvKeyring, err)
		}
		return filepath.Abs(k)
	}
	const pkg = "debian-archive-keyring"
	own := c.path("keyring")
	find := func() string {
		const name = "usr/share/keyrings/" + pkg + ".[gp]*"
		return cmp.Or(firstMatch("/", name), firstMatch(own, name))
	}
	if k := find(); k != "" {
		return k, nil
	}
	c.printf("keys of the Debian archive: package %s from this machine's own archive", pkg)
	debs := c.path("tmp", "keyring")
	err := os.MkdirAll(debs, 0o755)
	if err == nil {
		_, err = c.tool(ctx, debs, nil, "apt-get", "download", "-q", pkg)
	}
	if err == nil {
		err = c.unpack(ctx, debs, own)
	}
	if k := find(); err == nil && k != "" {
		return k, nil
	}
	err = cmp.Or(err, errors.New("the package has none"))
	return "", fmt.Errorf("no keys to check Debian's packages with: install %s, or set %s to a file that has them: %w", pkg, EnvKeyring, err)
}
