package serve

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestGroupLimit: the least limit counts, of a control group or of one above it.
func TestGroupLimit(t *testing.T) {
	root := t.TempDir()
	put := func(file, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(file)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
	}
	put("a/b/memory.max", "max\n")
	put("a/memory.max", "3000\n")
	put("c/memory.max", "4000\n")
	const none = ^uint64(0)
	for groups, want := range map[string]uint64{
		"":                    none,
		"0::/\n":              none,
		"0::/a/b\n":           3000,
		"0::/c/not/mounted\n": 4000,
		"0::/../c\n":          4000,
		"3:cpu:/a\n0::/c\n":   4000,
	} {
		require.Equal(t, want, groupLimit(root, groups), groups)
	}
	require.Positive(t, memoryLimit())
	require.Positive(t, addressSpace())
}
