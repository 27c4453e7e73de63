package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
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

// TestWholeFileKeepsTheOwner: root replaces a file of somebody else, and it is his as before,
// with the group and the mode that it had. Who may not give files away keeps it, and no group may
// read or write it that could not.
func TestWholeFileKeepsTheOwner(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report.json")
	me, other := owner{os.Geteuid(), os.Getegid()}, owner{os.Geteuid() + 1000, os.Getegid() + 1001}
	require.NoError(t, os.WriteFile(name, nil, 0o600))
	if err := os.Chown(name, other.uid, other.gid); err != nil {
		t.Skipf("only root can make files of somebody else, of which there are none otherwise: %v", err)
	}
	for _, m := range []fs.FileMode{0o640, 0o604, 0o600, 0o664} {
		replace(t, name, m, other, m, other)
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // for ever: a thread that is not what it was ends with this
		h := &unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		assert.NoError(t, unix.Capget(h, &caps[0]))
		caps[0].Effective &^= 1 << unix.CAP_CHOWN
		assert.NoError(t, unix.Capset(h, &caps[0]))
		for _, c := range []struct{ was, is fs.FileMode }{{0o640, 0o600}, {0o644, 0o644}, {0o604, 0o600}, {0o664, 0o644}, {0o666, 0o666}, {0o600, 0o600}} {
			replace(t, name, c.was, other, c.is, me)
			replace(t, name, c.was, owner{me.uid, other.gid}, c.is, me)
			replace(t, name, c.was, owner{other.uid, me.gid}, c.was, me)
		}
	}()
	<-done
}

// owner is whose a file is.
type owner struct{ uid, gid int }

// replace has a file of somebody replaced, and looks whose it is then, already while it is
// written. It may be called in any goroutine.
func replace(t *testing.T, name string, was fs.FileMode, of owner, is fs.FileMode, then owner) {
	t.Helper()
	made := make(chan error)
	go func() { // who has all powers
		made <- errors.Join(os.Remove(name), os.WriteFile(name, nil, 0o600), os.Chown(name, of.uid, of.gid), os.Chmod(name, was))
	}()
	assert.NoError(t, <-made)
	whose := func(name string) {
		t.Helper()
		st, err := os.Stat(name)
		if assert.NoError(t, err) {
			s := st.Sys().(*syscall.Stat_t)
			assert.Equal(t, is, st.Mode().Perm(), "of %v, which was %v of %v", then, was, of)
			assert.Equal(t, then, owner{int(s.Uid), int(s.Gid)}, "%v of %v", was, of)
		}
	}
	f, err := createWhole(name)
	if !assert.NoError(t, err) {
		return
	}
	whose(f.Name())
	assert.NoError(t, f.keep())
	whose(name)
}

// TestOfStrangers: whoever it is, a file whose group is another lets nobody but its owner do what
// the file before did not.
func TestOfStrangers(t *testing.T) {
	const before, after = 1, 2 // groups
	may := func(mode fs.FileMode, group int, in map[int]bool) fs.FileMode {
		if in[group] {
			return mode >> 3 & 7
		}
		return mode & 7
	}
	kept := 0
	for was := range fs.FileMode(0o1000) {
		is := ofStrangers(was)
		require.Equal(t, was&0o700, is&0o700)
		for _, in := range []map[int]bool{{}, {before: true}, {after: true}, {before: true, after: true}} {
			require.Zero(t, may(is, after, in)&^may(was, before, in), "%v became %v for %v", was, is, in)
		}
		if was>>3&7 == was&7 {
			require.Equal(t, was, is, "which is the same for all")
			kept++
		}
	}
	require.Equal(t, 8*8, kept)
}
