package fetch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// A failure to compile is told each time, and is not kept; a Mesa without OpenCL has nothing to compile.
func TestShaders(t *testing.T) {
	m := Mesa{Root: filepath.Join(t.TempDir(), "root")}
	_, files, err := m.Shaders(t.Context())
	require.NoError(t, err)
	require.Empty(t, files)

	vendors := filepath.Join(m.Root, "etc/OpenCL/vendors")
	require.NoError(t, os.MkdirAll(vendors, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(vendors, "rusticl.icd"), nil, 0o644))
	for range 2 {
		_, files, err = m.Shaders(t.Context())
		require.ErrorContains(t, err, "clinfo: ")
		require.Empty(t, files)
	}
	cache := filepath.Join(filepath.Dir(m.Root), "cache")
	require.NoDirExists(t, cache)

	require.NoError(t, os.MkdirAll(cache, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(cache, "index"), nil, 0o644))
	dir, files, err := m.Shaders(t.Context())
	require.NoError(t, err)
	require.Equal(t, cache, dir)
	require.Equal(t, []string{"index"}, files)
}
