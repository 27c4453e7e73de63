package fetch

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPickMirror(t *testing.T) {
	for name, c := range map[string]struct{ targets, main, security string }{
		"Debian 12, with repositories of others": {
			`https://shop.example/linux/ bookworm main
http://mirror.example/debian/ bookworm main
http://mirror.example/debian/ bookworm-updates main
http://mirror.example/debian-security/ bookworm-security main
https://z.example/apt/ z-bookworm main
`, "http://mirror.example/debian", "http://mirror.example/debian-security"},
		"a disk, and no main": {"cdrom:[Debian]/ trixie main\nhttps://download.example/linux/debian/ trixie stable\nhttp://m.example/debian/ sid main\n", "http://m.example/debian", ""},
		"cloud image":         {"mirror+file:/etc/apt/mirrors/debian.list/ trixie-backports main\n", "mirror+file:/etc/apt/mirrors/debian.list", ""},
		"another name":        {"http://m.example/d/ trixie main\n", "http://m.example/d", ""},
		"Ubuntu":              {"http://ubuntu.example/ubuntu/ noble main\nhttp://ubuntu.example/ubuntu/ noble-security main\n", "", ""},
	} {
		m := pickMirror(c.targets)
		require.Equal(t, c.main, m.main, name)
		require.Equal(t, c.security, m.security, name)
	}
}

func TestMirrorOfOnesOwn(t *testing.T) {
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
