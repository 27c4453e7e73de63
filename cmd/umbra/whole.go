package main

import (
	"errors"
	"fmt"
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
	// One of that name is left of a process that was killed: in a container numbers come again.
	f, err := os.OpenFile(fmt.Sprintf("%s.%d.tmp", name, os.Getpid()), os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	return &wholeFile{File: f, name: name}, nil
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
