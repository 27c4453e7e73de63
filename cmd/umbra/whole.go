package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// wholeFile is a file that takes the place of the one of its name when it is whole: until then,
// and if it never is, that one stays as it was.
type wholeFile struct {
	*os.File
	name string
	kept bool
}

// createWhole begins one, beside the one of its name. Who does not keep it discards it.
func createWhole(name string) (*wholeFile, error) {
	if to, err := filepath.EvalSymlinks(name); err == nil {
		name = to // a link that leads somewhere stays one
	}
	mode := fs.FileMode(0o666) // less what the umask takes
	old, err := os.Stat(name)
	if err == nil {
		mode = 0o600 // until it is clear who else may read it
	}
	tmp := fmt.Sprintf("%s.%d.tmp", name, os.Getpid())
	// One of that name is left of a process that was killed: in a container numbers come again.
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	f, err := os.OpenFile(tmp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return nil, err
	}
	w := &wholeFile{File: f, name: name}
	if old != nil {
		err = w.takeFrom(old)
	}
	if err != nil {
		return nil, errors.Join(err, w.discard())
	}
	return w, nil
}

// takeFrom gives the file owner, group and mode of the one that it will replace, before anything
// is in it. Only root may give files away: for anybody else it stays his own, with the group of
// the other if he is in that too. Whose file it was, or his group, may then be locked out; but
// nobody is let in who was not, for what a group that is another may do, and everybody, is what
// both could. The umask is for files that are new; access lists are not looked at.
func (f *wholeFile) takeFrom(old fs.FileInfo) error {
	now, err := f.Stat()
	if err != nil {
		return err
	}
	had, has := old.Sys().(*syscall.Stat_t), now.Sys().(*syscall.Stat_t)
	mode := old.Mode().Perm()
	if had.Gid != has.Gid && f.Chown(-1, int(had.Gid)) != nil {
		mode = ofStrangers(mode)
	}
	if now.Mode().Perm() != mode { // where a file system has one for all, it cannot be changed
		if err := f.Chmod(mode); err != nil {
			return err
		}
	}
	if had.Uid != has.Uid { // last: who gave it away could not change its mode
		_ = f.Chown(int(had.Uid), -1) // if that may be
	}
	return nil
}

// ofStrangers is a mode for a file whose group is another than the mode is for: members of
// either group may do what they could do whichever they are in.
func ofStrangers(mode fs.FileMode) fs.FileMode {
	both := mode >> 3 & mode & 7
	return mode&0o700 | both<<3 | both
}

// keep ends it: nothing is missing.
func (f *wholeFile) keep() error {
	err := f.Close()
	if err == nil {
		err = os.Rename(f.Name(), f.name)
	}
	f.kept = err == nil
	return err
}

// discard removes what was not kept.
func (f *wholeFile) discard() error {
	if f.kept {
		return nil
	}
	err := f.Close()
	if errors.Is(err, os.ErrClosed) {
		err = nil
	}
	return errors.Join(err, os.Remove(f.Name()))
}
