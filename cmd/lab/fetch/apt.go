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
	"strconv"
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

// openApt writes the configuration and sees to the package lists.
func (c *Cache) openApt(ctx context.Context) (*apt, error) {
	return c.openAptAt(ctx, c.path("apt"), sourcesList)
}

// openAptAt is openApt with a state of its own at root, and other lists.
func (c *Cache) openAptAt(ctx context.Context, root string, lists func(m mirror, keyring string) string) (*apt, error) {
	for _, tool := range []string{"apt-get", "apt-cache", "dpkg", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s is needed to fetch Debian packages: %w; without apt, set %s and %s to files of your own", tool, err, EnvQEMU, EnvKernel)
		}
	}
	m, err := c.findMirror(ctx)
	if err != nil {
		return nil, err
	}
	a := &apt{c: c, root: root}
	keyring, err := a.keyring(ctx)
	if err != nil {
		return nil, err
	}
	if err := a.write(ctx, lists(m, keyring)); err != nil {
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

// sourcesList names the suites: 6.1 is bookworm's kernel, 6.12 trixie's, later
// ones and QEMU are in trixie's backports.
func sourcesList(m mirror, keyring string) string {
	var b strings.Builder
	line := func(uri, suite string) {
		fmt.Fprintf(&b, "deb [arch=amd64 signed-by=%s] %s %s main\n", strings.ReplaceAll(keyring, " ", "%20"), uri, suite)
	}
	for _, suite := range []string{bookworm, trixie, trixie + "-backports"} {
		line(m.main, suite)
	}
	if m.security != "" {
		line(m.security, bookworm+"-security")
		line(m.security, trixie+"-security")
	}
	return b.String()
}

var hostSetting = regexp.MustCompile(`^Acquire::(https?::|Retries |Check-|ForceIPv[46] |Max-ValidTime )`)

// aptConf keeps apt away from the machine's state. APT_CONFIG is read before
// everything else, so that Dir::Etc here also hides the machine's apt.conf.d
// with its hooks.
func aptConf(root, hostDump string) string {
	var b strings.Builder
	set := func(key, value string) { fmt.Fprintf(&b, "%s \"%s\";\n", key, value) }
	set("Dir::Etc", filepath.Join(root, "etc"))
	set("Dir::Etc::netrc", "/etc/apt/auth.conf")
	set("Dir::Etc::netrcparts", "/etc/apt/auth.conf.d")
	set("Dir::State", root)
	set("Dir::State::lists", filepath.Join(root, "lists"))
	set("Dir::State::status", filepath.Join(root, "status"))
	set("Dir::Cache", filepath.Join(root, "cache"))
	set("Dir::Cache::archives", filepath.Join(root, "cache/archives"))
	set("Dir::Log", filepath.Join(root, "log"))
	set("APT::Architecture", "amd64")
	set("APT::Architectures", "amd64")
	set("APT::Sandbox::User", "root") // no change of user, so no file needs another owner
	set("Acquire::Languages", "none")
	set("Acquire::Retries", "3")
	// The lists are 20 MB packed, 110 MB unpacked.
	set("Acquire::GzipIndexes", "true")
	for line := range strings.Lines(hostDump) {
		if hostSetting.MatchString(line) {
			b.WriteString(line)
		}
	}
	return b.String()
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
		return fmt.Errorf("%w\n(the mirror must serve the suites %s, %s and %s-backports; set %s to use another)", err, bookworm, trixie, trixie, EnvMirror)
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
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, complaint(stderr.String(), stdout.String()))
	}
	return stdout.String(), nil
}

// complaint picks the lines that say what went wrong, or the last ones.
func complaint(outputs ...string) string {
	var errs, all []string
	for _, o := range outputs {
		for line := range strings.Lines(o) {
			line = strings.TrimRight(line, "\n")
			all = append(all, line)
			if strings.HasPrefix(line, "E:") || strings.HasPrefix(line, "Err:") {
				errs = append(errs, line)
			}
		}
	}
	if len(errs) == 0 {
		errs = all[max(0, len(all)-10):]
	}
	return strings.Join(errs, "\n")
}

// stanza is what the mirror says of a package.
type stanza struct {
	Package
	depends string
}

// show describes packages, each in the version that is named, or the one that apt would install.
func (a *apt) show(ctx context.Context, names ...string) ([]stanza, error) {
	out, err := a.run(ctx, "", "apt-cache", append([]string{"show", "--no-all-versions"}, names...)...)
	if err != nil {
		return nil, err
	}
	return parseShow(out), nil
}

func parseShow(out string) (list []stanza) {
	for text := range strings.SplitSeq(out, "\n\n") {
		var s stanza
		for line := range strings.Lines(text) {
			switch key, value, _ := strings.Cut(strings.TrimRight(line, "\n"), ": "); key {
			case "Package":
				s.Name = value
			case "Version":
				s.Version = value
			case "Size":
				s.Size, _ = strconv.ParseInt(value, 10, 64) // only for people
			case "Depends":
				s.depends = value
			}
		}
		if s.Name != "" {
			list = append(list, s)
		}
	}
	return list
}

// download gets packages by exact version into dir, and says how it goes.
func (a *apt) download(ctx context.Context, dir string, pkgs []Package) error {
	args := []string{"download", "-q"}
	var total int64
	for _, p := range pkgs {
		args = append(args, p.Name+"="+p.Version)
		total += p.Size
	}
	stop := a.c.watch(dir, total)
	defer stop()
	_, err := a.run(ctx, dir, "apt-get", args...)
	return err
}

// watch prints how much has arrived in dir, every few seconds, until stop.
func (c *Cache) watch(dir string, total int64) (stop func()) {
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
				if n, err := treeSize(dir); err == nil {
					c.printf("  %s of %s", mb(n), mb(total))
				}
			}
		}
	}()
	return func() { close(done); <-ended }
}

// unpack extracts each package in debs below root.
func (c *Cache) unpack(ctx context.Context, debs, root string) error {
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

// keyring finds the public keys of Debian's archive. A machine that is not
// Debian (Ubuntu) has them in a package of its own archive, which its apt can
// download without installing it.
func (a *apt) keyring(ctx context.Context) (string, error) {
	if k := os.Getenv(EnvKeyring); k != "" {
		if _, err := os.Stat(k); err != nil {
			return "", fmt.Errorf("%s: %w", EnvKeyring, err)
		}
		return filepath.Abs(k)
	}
	own := a.c.path("keyring")
	if k := keyringBelow("/"); k != "" {
		return k, nil
	}
	if k := keyringBelow(own); k != "" {
		return k, nil
	}
	const pkg = "debian-archive-keyring"
	a.c.printf("keys of the Debian archive: package %s from this machine's own archive", pkg)
	debs := a.c.path("tmp", "keyring")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return "", err
	}
	_, err := a.c.tool(ctx, debs, nil, "apt-get", "download", "-q", pkg)
	if err == nil {
		err = a.c.unpack(ctx, debs, own)
	}
	if err != nil {
		return "", fmt.Errorf("no keys to check Debian's packages with: install %s, or set %s to a file that has them: %w", pkg, EnvKeyring, err)
	}
	if k := keyringBelow(own); k != "" {
		return k, nil
	}
	return "", fmt.Errorf("package %s holds no keyring; set %s", pkg, EnvKeyring)
}

func keyringBelow(root string) string {
	for _, name := range []string{"debian-archive-keyring.gpg", "debian-archive-keyring.pgp"} {
		p := filepath.Join(root, "usr/share/keyrings", name)
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	return ""
}

func exists(p string) bool {
	_, err := os.Stat(p)
	return !errors.Is(err, fs.ErrNotExist)
}

// newer compares two versions by Debian's order.
func newer(ctx context.Context, a, b string) bool {
	return exec.CommandContext(ctx, "dpkg", "--compare-versions", a, "gt", b).Run() == nil
}
