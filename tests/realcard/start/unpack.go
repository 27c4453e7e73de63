package main

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/therootcompany/xz"
)

// unpack unpacks an archive. It needs no program of the machine: a small one has neither xz nor zstd.
func unpack(ctx context.Context, archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	z, err := xz.NewReader(bufio.NewReaderSize(f, 1<<20), 0)
	if err != nil {
		return fmt.Errorf("%s: %w", archive, err)
	}
	for t := tar.NewReader(z); ctx.Err() == nil; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", archive, err)
		}
		at := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(at, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, at)
		default:
			err = write(at, t, h.FileInfo().Mode()|0o444)
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

func write(at string, from io.Reader, mode os.FileMode) error {
	f, err := os.OpenFile(at, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode.Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}
