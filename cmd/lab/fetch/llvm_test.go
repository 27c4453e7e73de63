package fetch

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The server finds the library where the lab's cache has it.
func TestCachedLLVM(t *testing.T) {
	c := &Cache{Dir: t.TempDir()}
	t.Setenv(EnvCache, c.Dir)
	t.Setenv(EnvLLVM, "")
	require.Empty(t, CachedLLVM())
	dir, libraries := c.llvmDirs()
	require.NoError(t, os.MkdirAll(libraries, 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(dir, stampFile), []byte(`{"packages": [{"name": "libllvm19", "version": "1"}]}`), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(libraries, llvmLibrary), nil, 0o600))
	l, err := c.LLVM(t.Context())
	require.NoError(t, err)
	require.Equal(t, l.Dir, CachedLLVM())
	require.Equal(t, filepath.Dir(l.File), l.Dir)
}
