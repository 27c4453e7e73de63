package image

import (
	"bufio"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
)

// Folder writes an initramfs with all that a folder has, owned by root: a system with an init of its own. The folder's
// special files are left out; it has the two devices that an init needs before it mounts /dev.
func Folder(dir, out string) error {
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	var a archive
	err = filepath.WalkDir(dir, func(at string, d fs.DirEntry, err error) error {
		if err != nil || at == dir {
			return err
		}
		name, err := filepath.Rel(dir, at)
		if err != nil {
			return err
		}
		switch info, err := d.Info(); {
		case err != nil:
			return err
		case d.IsDir():
			a.add(name, info.Mode(), 0, 0, nil)
			return nil
		case info.Mode().Type()&^fs.ModeSymlink != 0:
			return nil
		}
		return a.addFile(w, name, at, nil)
	})
	a.add("dev/console", fs.ModeCharDevice|0o600, 5, 1, nil)
	a.add("dev/null", fs.ModeCharDevice|0o666, 1, 3, nil)
	a.add("TRAILER!!!", 0, 0, 0, nil)
	_, werr := a.WriteTo(w)
	return errors.Join(err, werr, w.Flush(), f.Close())
}
