package fetch

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
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

func TestKernelPackages(t *testing.T) {
	all := []string{
		"linux-image-6.1.0-9-amd64", "linux-image-6.1.0-56-amd64-unsigned", "linux-image-6.1.0-56-amd64", "linux-image-6.1.0-57-cloud-amd64",
		"linux-image-6.1.0-57-rt-amd64", "linux-image-6.1.0-57-amd64-dbg", "linux-image-amd64", "linux-image-cloud-amd64", "linux-base",
		"linux-image-6.12.90+deb13.1-amd64", "linux-image-6.12.117+deb13-amd64", "linux-image-6.12.118+deb13-cloud-amd64",
		"linux-image-7.2.12+deb13-amd64", "linux-base-7.2.12+deb13-amd64", "linux-binary-7.2.12+deb13-amd64", "linux-modules-7.2.12+deb13-amd64",
		"linux-image-7.3.1+deb13-amd64-unsigned", "linux-binary-7.3.1+deb13-amd64-unsigned", "linux-modules-7.3.1+deb13-amd64",
	}
	for version, want := range map[string][]string{"6.1": all[2:3], "6.12": all[10:11], "7.2": all[12:16], "7.3": all[16:19]} {
		got, err := kernelPackages(t.Context(), all, version)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	_, err := kernelPackages(t.Context(), all, "7.4")
	require.ErrorContains(t, err, "no kernel 7.4; it has 6.1, 6.12, 7.2, 7.3")
}

// bzImage makes a file with a Linux header that names a release.
func bzImage(t *testing.T, version string) string {
	head := make([]byte, 0x800)
	copy(head[0x202:], "HdrS")
	head[0x236] = 1 // for 64 bits
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
	require.ErrorContains(t, err, "is an ELF file, as vmlinux is; give arch/x86/boot/bzImage")
	data, err := os.ReadFile(bzImage(t, "6.1"))
	require.NoError(t, err)
	for at, want := range map[int]string{0x236: "for 32 bits", 0x202: "no HdrS"} {
		bad := slices.Clone(data)
		bad[at] = 0
		require.NoError(t, os.WriteFile(p, bad, 0o644))
		_, err = imageRelease(p)
		require.ErrorContains(t, err, want)
	}
	for _, version := range []string{"", "../../etc", "6.1/../..", "..", "own"} {
		_, err = imageRelease(bzImage(t, version))
		require.ErrorContains(t, err, "want a release such as 6.19.0-own", version)
	}
}

// A user's kernel stands for its own version only.
func TestUserKernel(t *testing.T) {
	var said strings.Builder
	c := &Cache{Dir: t.TempDir(), Progress: &said}
	t.Setenv(EnvKernel, bzImage(t, "6.99.1-own (me)"))
	t.Setenv(EnvKernelModules, "")
	for _, version := range []string{"", "6.99"} {
		k, err := c.Kernel(t.Context(), version)
		require.NoError(t, err)
		require.Equal(t, "6.99.1-own", k.Release)
		require.Empty(t, k.Modules, "this machine has no modules for it")
	}
	require.Contains(t, said.String(), "vmlinuz: the kernel lies at")
	require.Contains(t, said.String(), "whether nouveau is built in is not known")
	t.Setenv(EnvMirror, "nothing") // so that the attempt to fetch fails at once
	_, err := c.Kernel(t.Context(), "6.12")
	require.ErrorContains(t, err, "fetching Linux 6.12")

	_, err = c.Kernel(t.Context(), "../x")
	require.ErrorContains(t, err, `"../x"`)
	t.Setenv(EnvKernelModules, t.TempDir())
	_, err = c.Kernel(t.Context(), "")
	require.ErrorContains(t, err, EnvKernelModules)
}

// A kernel of one's own has nouveau among its modules, or built in.
func TestOwnKernelModules(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	image, modules := bzImage(t, "6.99.1-own"), t.TempDir()
	write := func(name, text string) {
		at := filepath.Join(modules, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
	}
	write("kernel/other.ko", "")
	_, err := c.OwnKernel(t.Context(), image, modules)
	require.ErrorContains(t, err, modules+" has no module nouveau, which a guest needs; enable CONFIG_DRM_NOUVEAU")
	write("modules.builtin", "kernel/drivers/gpu/drm/nouveau/nouveau.ko\n")
	k, err := c.OwnKernel(t.Context(), image, modules)
	require.NoError(t, err)
	require.Empty(t, k.Modules)
}
