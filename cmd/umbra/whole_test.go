package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWholeFileKeepsTheMode: a report that replaces another may be read by whom the other could
// be, already while it is written; a new one by whom the umask lets.
func TestWholeFileKeepsTheMode(t *testing.T) {
	defer syscall.Umask(syscall.Umask(0o027))
	dir := t.TempDir()
	mode := func(name string) fs.FileMode {
		t.Helper()
		st, err := os.Stat(name)
		require.NoError(t, err)
		return st.Mode().Perm()
	}
	write := func(name string, meanwhile fs.FileMode) {
		t.Helper()
		f, err := createWhole(name)
		require.NoError(t, err)
		require.Equal(t, meanwhile, mode(f.Name()), "of what is being written")
		_, err = f.WriteString("new")
		require.NoError(t, err)
		require.NoError(t, f.keep())
		require.NoError(t, f.discard())
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		require.Equal(t, "new", string(text))
		require.Equal(t, meanwhile, mode(name))
	}
	write(filepath.Join(dir, "new.json"), 0o640)
	// Those that the umask would widen or narrow, one that cannot be written to, and one that the
	// umask would take from its owner.
	for _, m := range []fs.FileMode{0o600, 0o644, 0o666, 0o400} {
		name := filepath.Join(dir, "old.json")
		require.NoError(t, os.WriteFile(name, []byte("old"), 0o600))
		require.NoError(t, os.Chmod(name, m))
		write(name, m)
		link := filepath.Join(dir, "link.json")
		require.NoError(t, os.Symlink(name, link))
		write(link, m)
		to, err := os.Readlink(link)
		require.NoError(t, err)
		require.Equal(t, name, to, "a link stays one")
		require.NoError(t, os.Remove(link))
		require.NoError(t, os.Remove(name))
	}

	// What a killed process left is in nobody's way.
	name := filepath.Join(dir, "after.json")
	f, err := createWhole(name)
	require.NoError(t, err)
	require.NoError(t, f.Chmod(0o400))
	require.NoError(t, f.Close())
	write(name, 0o640)

	left, err := filepath.Glob(filepath.Join(dir, "*.tmp"))
	require.NoError(t, err)
	require.Empty(t, left, strings.Join(left, " "))
}
