package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
)

// wholeFile collects the contents of a file, which is written when it is complete. A
// file that is there keeps its contents until then, and its owner and mode.
type wholeFile struct {
	bytes.Buffer
	name string
}

// createWhole makes a wholeFile for a path that can be written.
func createWhole(name string) (*wholeFile, error) {
	_, err := os.Stat(name)
	fresh := errors.Is(err, fs.ErrNotExist)
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return nil, err
	}
	if err := f.Close(); err != nil {
		return nil, err
	}
	if fresh {
		err = os.Remove(name)
	}
	return &wholeFile{name: name}, err
}

// keep writes the file.
func (f *wholeFile) keep() error { return os.WriteFile(f.name, f.Bytes(), 0o666) }

// discard drops contents that were not kept.
func (f *wholeFile) discard() error { return nil }
