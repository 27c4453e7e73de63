package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
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
		mode = old.Mode().Perm()
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
		err = w.takeMode(mode)
	}
	if err != nil {
		return nil, errors.Join(err, w.discard())
	}
	return w, nil
}

// takeMode gives the file the mode of the one that it will replace, before anything is in it:
// who may not read that one may not read this one, and who may, may. The umask is for files
// that are new.
func (f *wholeFile) takeMode(mode fs.FileMode) error {
	now, err := f.Stat()
	if err != nil || now.Mode().Perm() == mode { // where a file system has one for all, it cannot be changed
		return err
	}
	return f.Chmod(mode)
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
