package fetch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// folder makes files with texts.
func folder(t *testing.T, files map[string]string) string {
	dir := t.TempDir()
	for name, text := range files {
		at := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(at), 0o755))
		require.NoError(t, os.WriteFile(at, []byte(text), 0o644))
	}
	return dir
}

func TestOpenPrefix(t *testing.T) {
	const gallium, egl, vulkan = "lib64/libgallium-26.3.0.so", "lib64/libEGL_mesa.so.0", "lib/libvulkan_nouveau.so"
	for _, c := range []struct {
		files  map[string]string
		vulkan bool
		want   string // of the error
	}{
		{map[string]string{gallium: "... nvc0_program ...", egl: ""}, false, ""},
		{map[string]string{"lib/x86_64-linux-gnu/libRusticlOpenCL.so.1": "nvc0_program"}, false, ""},
		{map[string]string{vulkan: "", "share/vulkan/icd.d/nouveau_icd.x86_64.json": "{}"}, true, ""},
		{map[string]string{"meson.build": ""}, false, "a folder of sources or of a build; run meson install"},
		{map[string]string{"lib/libm.so": ""}, false, "have none of libgallium-*.so, "},
		{map[string]string{gallium: "llvmpipe", egl: ""}, false, "lib64 has no driver nouveau; configure with -Dgallium-drivers=nouveau"},
		{map[string]string{gallium: "nvc0_program"}, false, "lib64 has none of libEGL_mesa.so.0, libEGL.so.1, libRusticlOpenCL.so.1"},
		{map[string]string{gallium: "nvc0_program", egl: ""}, true, "have none of libvulkan_nouveau.so"},
		{map[string]string{vulkan: ""}, true, "nouveau_icd*.json is missing"},
	} {
		dir := folder(t, c.files)
		p, err := openPrefix(dir, Mesa{Vulkan: c.vulkan, Root: "/nowhere"})
		if c.want == "" {
			require.NoError(t, err)
			require.NotEmpty(t, p.content)
			continue
		}
		require.ErrorContains(t, err, "Mesa "+dir+": ")
		require.ErrorContains(t, err, c.want)
	}
	_, err := openPrefix("/nowhere/mesa", Mesa{})
	require.ErrorContains(t, err, "Mesa /nowhere/mesa: no such folder")

	dir, root := folder(t, map[string]string{gallium: nouveau, egl: ""}), t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(root, dir, "share"), 0o755))
	_, err = openPrefix(dir, Mesa{Root: root})
	require.ErrorContains(t, err, "share is a folder of Debian's, too; install to a prefix of its own")
}

// A Mesa of one's own replaces Debian's by new files: the old ones are also the cache's.
func TestOwnMesa(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	lib := libraries + "/"
	base := Mesa{Version: "25", Root: folder(t, map[string]string{
		lib + "libgallium-25.so": "old", lib + "libEGL_mesa.so.0": "old", lib + "libRusticlOpenCL.so.1": "old", lib + "libEGL.so.1": "vendors'",
		"etc/OpenCL/vendors/rusticl.icd": "libRusticlOpenCL.so.1", "usr/share/vulkan/icd.d/nouveau_icd.json": "{}",
	})}
	dir := folder(t, map[string]string{"lib/libgallium-26.so": nouveau, "lib/libEGL_mesa.so.0": "new", "share/drirc.d/own.conf": "x"})
	var last Mesa
	for range 2 { // the second time from the cache
		m, err := c.ownMesa(t.Context(), dir, base)
		require.NoError(t, err)
		read := func(name string) string {
			data, err := os.ReadFile(filepath.Join(m.Root, name))
			if err != nil {
				return "nothing"
			}
			return string(data)
		}
		require.Equal(t, nouveau, read(lib+"libgallium-26.so"))
		require.Equal(t, "nothing", read(lib+"libgallium-25.so"))
		require.Equal(t, "nothing", read(lib+"libRusticlOpenCL.so.1"), "programs must not find Debian's")
		require.Equal(t, "nothing", read("usr/share/vulkan/icd.d/nouveau_icd.json"), "a GPU must not be there twice")
		require.Equal(t, "new", read(lib+"libEGL_mesa.so.0"))
		require.Equal(t, "vendors'", read(lib+"libEGL.so.1"))
		require.Equal(t, "x", read("usr/share/drirc.d/own.conf"))
		target, err := os.Readlink(filepath.Join(m.Root, dir, "lib"))
		require.NoError(t, err)
		require.Equal(t, "/"+libraries, target)
		if last.Root != "" {
			require.Equal(t, last, m)
		}
		last = m
	}
	old, err := os.ReadFile(filepath.Join(base.Root, lib, "libEGL_mesa.so.0"))
	require.NoError(t, err)
	require.Equal(t, "old", string(old))

	require.NoError(t, os.WriteFile(filepath.Join(dir, "lib/libEGL_mesa.so.0"), []byte("newer"), 0o644))
	m, err := c.ownMesa(t.Context(), dir, base)
	require.NoError(t, err)
	require.NotEqual(t, last.Root, m.Root)
	require.DirExists(t, last.Root, "programs may run on it")

	unused := time.Now().Add(-2 * stateAge)
	require.NoError(t, os.Chtimes(filepath.Dir(last.Root), unused, unused))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "lib/libEGL_mesa.so.0"), []byte("newest"), 0o644))
	require.NoError(t, os.Rename(base.Root, base.Root+"-gone"))
	_, err = c.ownMesa(t.Context(), dir, base)
	require.Error(t, err)
	require.NoError(t, os.Rename(base.Root+"-gone", base.Root))
	require.DirExists(t, last.Root, "a state is removed only after another was made")
	_, err = c.ownMesa(t.Context(), dir, base)
	require.NoError(t, err)
	require.NoDirExists(t, last.Root)
	require.DirExists(t, m.Root)
}
