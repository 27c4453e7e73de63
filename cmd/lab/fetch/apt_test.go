package fetch

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAptConf(t *testing.T) {
	host := `APT::Update::Post-Invoke:: "rm -f /var/cache/apt/*.bin";
Acquire::http::Proxy "http://proxy.example:3128";
Acquire::https::Verify-Peer "true";
Acquire::Check-Valid-Until "false";
Acquire::IndexTargets::deb::DEP-11::KeepCompressed "true";
Dir::State "var/lib/apt";
`
	conf := aptConf("/c/apt", host)
	require.Contains(t, conf, `Acquire::http::Proxy "http://proxy.example:3128";
Acquire::https::Verify-Peer "true";
Acquire::Check-Valid-Until "false";
`)
	require.NotContains(t, conf, "Post-Invoke", "the machine's hooks would touch its own state")
	require.NotContains(t, conf, "IndexTargets")
	for line := range strings.Lines(conf) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, ";\n"), " ")
		if strings.HasPrefix(key, "Dir::") && !strings.HasPrefix(key, "Dir::Etc::netrc") {
			require.Truef(t, strings.HasPrefix(value, `"/c/apt`), "%s leaves the cache", line)
		}
	}
}

func TestSourcesList(t *testing.T) {
	m := mirror{main: "http://m.example/debian"}
	require.Equal(t, 3, strings.Count(sourcesList(m, "/k.gpg", binaries), "\n"))
	m.security = "http://s.example/sec"
	require.Equal(t, `deb [arch=amd64 signed-by=/k%20k.gpg] http://m.example/debian bookworm main
deb [arch=amd64 signed-by=/k%20k.gpg] http://s.example/sec bookworm-security main
deb [arch=amd64 signed-by=/k%20k.gpg] http://m.example/debian trixie main
deb [arch=amd64 signed-by=/k%20k.gpg] http://s.example/sec trixie-security main
deb [arch=amd64 signed-by=/k%20k.gpg] http://m.example/debian trixie-backports main
`, sourcesList(m, "/k k.gpg", binaries))
}

func TestPickMirror(t *testing.T) {
	for targets, want := range map[string]mirror{
		`https://shop.example/linux/ bookworm main
http://mirror.example/debian/ bookworm main
http://mirror.example/debian/ bookworm-updates main
http://mirror.example/debian-security/ bookworm-security main
`: {"http://mirror.example/debian", "http://mirror.example/debian-security", "apt's sources"},
		"cdrom:[Debian]/ trixie main\nhttps://download.example/linux/debian/ trixie stable\nhttp://m.example/debian/ sid main\n": {
			"http://m.example/debian", "", "apt's sources"},
		"mirror+file:/etc/apt/mirrors/debian-security.list/ trixie-security main\nmirror+file:/etc/apt/mirrors/debian.list/ trixie main\n": {
			"mirror+file:/etc/apt/mirrors/debian.list", "mirror+file:/etc/apt/mirrors/debian-security.list", "apt's sources"},
		"http://ubuntu.example/ubuntu/ noble main\nhttp://ubuntu.example/ubuntu/ noble-security main\n": {},
	} {
		require.Equal(t, want, pickMirror(targets), targets)
	}
	c := &Cache{Dir: t.TempDir()}
	t.Setenv(EnvMirror, "http://own.example/debian/")
	t.Setenv(EnvSecurity, "http://own.example/sec/")
	m, err := c.findMirror(t.Context())
	require.NoError(t, err)
	require.Equal(t, mirror{"http://own.example/debian", "http://own.example/sec", EnvMirror}, m)
	t.Setenv(EnvMirror, "mirror.example")
	_, err = c.findMirror(t.Context())
	require.ErrorContains(t, err, `"mirror.example"`)
}

func TestParseURIs(t *testing.T) {
	pkgs, size := parseURIs(`Reading package lists...
Need to get 37.9 MB of archives.
'http://m.example/q/qemu-system-x86_11.1.3%2bds-1%7ebpo13%2b1_amd64.deb' qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb 10377056 SHA256:00
'http://m.example/s/seabios_1.17.0-1_all.deb' seabios_1.17.0-1_all.deb 160548 SHA256:00
'http://m.example/q/qemu_10.0.2%2bds-2.dsc' qemu_10.0.2+ds-2.dsc 8000 SHA256:00
'http://m.example/q/qemu_10.0.2%2bds.orig.tar.xz' qemu_10.0.2+ds.orig.tar.xz 40000000 SHA256:00
`)
	require.Equal(t, []Package{{"qemu-system-x86", "1:11.1.3+ds-1~bpo13+1"}, {"seabios", "1.17.0-1"}, {"qemu", "10.0.2+ds-2"}}, pkgs)
	require.EqualValues(t, 50545604, size)
}

func TestComplaint(t *testing.T) {
	require.Equal(t, "E: no", complaint("Reading...\nE: no\nnoise\n"))
	require.Equal(t, "a\nb", complaint("a\nb\n"))
}
