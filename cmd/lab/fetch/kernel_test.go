package fetch

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		release, want string
		ok            bool
	}{
		{"6.1.0-56-amd64", "6.1", true},
		{"6.12.117+deb13-amd64", "6.1", false},
		{"6.12.117+deb13-amd64", "6.12", true},
		{"6.12.117+deb13-amd64", "6.12.117", true},
		{"6.12.117+deb13-amd64", "6.12.11", false},
		{"7.2-amd64", "7.2", true},
		{"7.20.1", "7.2", false},
	} {
		require.Equal(t, c.ok, matches(c.release, c.want), "%s, %s", c.release, c.want)
	}
}

func TestKernelCandidates(t *testing.T) {
	names := []string{
		"linux-image-6.1.0-56-amd64", "linux-image-6.1.0-56-amd64-unsigned", "linux-image-6.1.0-56-cloud-amd64",
		"linux-image-6.1.0-56-rt-amd64", "linux-image-6.1.0-56-amd64-dbg",
		"linux-image-6.12.117+deb13-amd64", "linux-image-6.12.90+deb13.1-amd64", "linux-image-6.12.117+deb13-cloud-amd64",
		"linux-image-7.2.12+deb13-amd64", "linux-image-amd64", "linux-image-cloud-amd64",
	}
	require.Equal(t, names[0:2], kernelCandidates(names, "6.1"))
	require.Equal(t, names[5:7], kernelCandidates(names, "6.12"))
	require.Equal(t, names[8:9], kernelCandidates(names, "7.2"))
	require.Empty(t, kernelCandidates(names, "7.3"))
}

func TestKernelPart(t *testing.T) {
	depends := "dracut | initramfs-tools (>= 0.120+deb8u2), linux-base-7.2.12+deb13-amd64 (= 7.2.12-1~bpo13+1), linux-binary-7.2.12+deb13-amd64 (= 7.2.12-1~bpo13+1), linux-base (>= 4.12)"
	m := kernelPart.FindAllStringSubmatch(depends, -1)
	require.Len(t, m, 2)
	require.Equal(t, "linux-base-7.2.12+deb13-amd64", m[0][1])
	require.Equal(t, "7.2.12-1~bpo13+1", m[1][2])
}

// bzImage makes a file with a Linux header that names a release.
func bzImage(t *testing.T, version string) string {
	head := make([]byte, 0x800)
	copy(head[0x202:], "HdrS")
	binary.LittleEndian.PutUint16(head[0x20e:], 0x300)
	copy(head[0x500:], version)
	p := filepath.Join(t.TempDir(), "vmlinuz")
	require.NoError(t, os.WriteFile(p, head, 0o644))
	return p
}

func TestImageRelease(t *testing.T) {
	r, err := imageRelease(bzImage(t, "6.12.117+deb13-amd64 (build@host) #1 SMP"))
	require.NoError(t, err)
	require.Equal(t, "6.12.117+deb13-amd64", r)

	p := filepath.Join(t.TempDir(), "elf")
	require.NoError(t, os.WriteFile(p, []byte("\x7fELF"), 0o644))
	_, err = imageRelease(p)
	require.ErrorContains(t, err, "not a bzImage")
	_, err = imageRelease(bzImage(t, ""))
	require.ErrorContains(t, err, "empty")
}

// A user's kernel stands for its own version only.
func TestUserKernel(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	t.Setenv(EnvKernel, bzImage(t, "6.99.1-own (me)"))
	t.Setenv(EnvKernelModules, "")
	for _, version := range []string{"", "6.99"} {
		k, err := c.Kernel(t.Context(), version)
		require.NoError(t, err)
		require.Equal(t, "6.99.1-own", k.Release)
		require.Empty(t, k.Modules, "this machine has no modules for it")
	}
	t.Setenv(EnvMirror, "nothing") // so that the attempt to fetch fails at once
	_, err := c.Kernel(t.Context(), "6.12")
	require.ErrorContains(t, err, "fetching Linux 6.12")

	_, err = c.Kernel(t.Context(), "../x")
	require.ErrorContains(t, err, `"../x"`)
	t.Setenv(EnvKernelModules, t.TempDir())
	_, err = c.Kernel(t.Context(), "")
	require.ErrorContains(t, err, EnvKernelModules)
}
