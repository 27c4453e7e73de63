package fetch

import (
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

// The sources of a fresh Debian 12, with two repositories of others.
var bookwormApt = fstest.MapFS{
	"sources.list": {Data: []byte("# see sources.list.d\n")},
	"sources.list.d/debian.sources": {Data: []byte(`Types: deb
# a comment inside
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`)},
	"sources.list.d/a-shop.list": {Data: []byte("deb [arch=amd64 signed-by=/k.gpg] https://shop.example/linux bookworm main\n")},
	"sources.list.d/z.list":      {Data: []byte("deb https://z.example/apt z-bookworm main\n")},
}

func env(kv ...string) func(string) string {
	return func(key string) string {
		for i := 0; i < len(kv); i += 2 {
			if kv[i] == key {
				return kv[i+1]
			}
		}
		return ""
	}
}

func TestFindMirror(t *testing.T) {
	oneLine := fstest.MapFS{"sources.list": {Data: []byte(`
deb cdrom:[Debian GNU/Linux 13]/ trixie main
deb-src http://src.example/debian trixie main
deb http://mirror.example/debian/ trixie main contrib # as installed
deb http://security.example/debian-security trixie-security main
deb https://download.example/linux/debian trixie stable
`)}}
	cloud := fstest.MapFS{"sources.list.d/debian.sources": {Data: []byte(`Types: deb deb-src
URIs: mirror+file:/etc/apt/mirrors/debian.list
Suites: trixie trixie-updates trixie-backports
Components: main

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
`)}}
	embedded := fstest.MapFS{"sources.list.d/x.sources": {Data: []byte(`Types: deb
URIs: http://mirror.example/debian
Suites: sid
Components:
 main
 contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 URIs: not-a-field
`)}}
	ubuntu := fstest.MapFS{"sources.list.d/ubuntu.sources": {Data: []byte(`Types: deb
URIs: http://ubuntu.example/ubuntu
Suites: noble noble-updates noble-security
Components: main universe
`)}}
	for name, c := range map[string]struct {
		apt            fstest.MapFS
		env            func(string) string
		main, security string
	}{
		"Debian 12":             {bookwormApt, env(), "http://mirror.example/debian", "http://mirror.example/debian-security"},
		"one-line format":       {oneLine, env(), "http://mirror.example/debian", "http://security.example/debian-security"},
		"cloud image":           {cloud, env(), "mirror+file:/etc/apt/mirrors/debian.list", ""},
		"embedded key":          {embedded, env(), "http://mirror.example/debian", ""},
		"environment first":     {bookwormApt, env(EnvMirror, "http://own.example/debian/"), "http://own.example/debian", ""},
		"environment, both":     {ubuntu, env(EnvMirror, "http://own.example/debian", EnvSecurity, "http://own.example/sec/"), "http://own.example/debian", "http://own.example/sec"},
		"security of one's own": {bookwormApt, env(EnvSecurity, "http://own.example/sec"), "http://mirror.example/debian", "http://own.example/sec"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := findMirror(c.apt, c.env)
			require.NoError(t, err)
			require.Equal(t, c.main, m.Main)
			require.Equal(t, c.security, m.Security)
			require.NotEmpty(t, m.From)
		})
	}

	for name, apt := range map[string]fstest.MapFS{"Ubuntu": ubuntu, "no apt": {}} {
		t.Run(name, func(t *testing.T) {
			_, err := findMirror(apt, env())
			require.ErrorContains(t, err, EnvMirror, "the error names the remedy")
		})
	}
	_, err := findMirror(bookwormApt, env(EnvMirror, "mirror.example"))
	require.ErrorContains(t, err, `"mirror.example"`)
}
