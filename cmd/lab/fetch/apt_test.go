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
DPkg::Post-Invoke:: "true";
Dir::State "var/lib/apt";
`
	conf := aptConf("/c/apt", host)
	require.Contains(t, conf, "Acquire::http::Proxy \"http://proxy.example:3128\";\n")
	require.Contains(t, conf, "Acquire::https::Verify-Peer")
	require.Contains(t, conf, "Acquire::Check-Valid-Until")
	require.NotContains(t, conf, "Post-Invoke", "the machine's hooks would touch its own state")
	require.NotContains(t, conf, "IndexTargets")
	require.Contains(t, conf, "Dir::State \"/c/apt\";\n")
	for line := range strings.Lines(conf) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, ";\n"), " ")
		if strings.HasPrefix(key, "Dir::") && !strings.HasPrefix(key, "Dir::Etc::netrc") {
			require.Truef(t, strings.HasPrefix(value, `"/c/apt`), "%s leaves the cache", line)
		}
	}
}

func TestSourcesList(t *testing.T) {
	text := sourcesList(mirror{main: "http://m.example/debian"}, "/k.gpg")
	require.Equal(t, 3, strings.Count(text, "\n"))
	require.Contains(t, text, "deb [arch=amd64 signed-by=/k.gpg] http://m.example/debian trixie-backports main\n")
	text = sourcesList(mirror{main: "http://m.example/debian", security: "http://s.example/sec"}, "/k.gpg")
	require.Equal(t, 5, strings.Count(text, "\n"))
	require.Contains(t, text, " http://s.example/sec bookworm-security main\n")
}

func TestParseURIs(t *testing.T) {
	out := `Reading package lists...
Need to get 37.9 MB of archives.
'http://m.example/q/qemu-system-x86_11.1.3%2bds-1%7ebpo13%2b1_amd64.deb' qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb 10377056 SHA256:00
'http://m.example/s/seabios_1.17.0-1_all.deb' seabios_1.17.0-1_all.deb 160548 SHA256:00
`
	require.Equal(t, []Package{
		{Name: "qemu-system-x86", Version: "1:11.1.3+ds-1~bpo13+1", Size: 10377056},
		{Name: "seabios", Version: "1.17.0-1", Size: 160548},
	}, parseURIs(out))
}

func TestParseShow(t *testing.T) {
	got := parseShow("Package: linux-image-7.2-amd64\nVersion: 7.2-1\nSize: 12\nDepends: a, b (= 1)\nDescription: x\n Version: of the text\n\nPackage: y\nVersion: 1\nSize: 3\n")
	require.Equal(t, []stanza{{Package{"linux-image-7.2-amd64", "7.2-1", 12}, "a, b (= 1)"}, {Package{"y", "1", 3}, ""}}, got)
}

func TestComplaint(t *testing.T) {
	require.Equal(t, "E: no", complaint("Reading...\nE: no\n", "noise\n"))
	require.Equal(t, "a\nb", complaint("a\nb\n", ""))
}
