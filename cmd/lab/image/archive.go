package image

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// archive is a cpio archive in the format that the kernel reads ("newc").
type archive struct {
	bytes.Buffer
	files int
}

// add adds a file, a folder, a character device, or a link whose data is its target.
func (a *archive) add(name string, mode fs.FileMode, major, minor int, data []byte) {
	a.addDated(name, mode, 0, major, minor, data)
}

func (a *archive) addDated(name string, mode fs.FileMode, modified int64, major, minor int, data []byte) {
	a.files++
	m := uint32(mode.Perm())
	switch {
	case mode.IsDir():
		m |= 0o040000
	case mode&fs.ModeCharDevice != 0:
		m |= 0o020000
	case mode&fs.ModeSymlink != 0:
		m |= 0o120000
	default:
		m |= 0o100000
	}
	fmt.Fprint(a, "070701")
	for _, v := range []int{a.files, int(m), 0, 0, 1, int(modified), len(data), 0, 0, major, minor, len(name) + 1, 0} {
		fmt.Fprintf(a, "%08x", v)
	}
	a.WriteString(name + "\x00")
	a.Write(make([]byte, -a.Len()&3))
	a.Write(data)
	a.Write(make([]byte, -a.Len()&3))
}

// addFolder adds the files of a folder, which has no other folders, each as change makes it.
func (a *archive) addFolder(name, dir string, change func([]byte) []byte) error {
	found, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil {
		return err
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	return a.addFiles(nil, name, dir, found, change)
}

// addFiles adds files and links of a folder, with the folders above each. It passes them on to w one by
// one, if that is not nil: all of them may take much room.
func (a *archive) addFiles(w io.Writer, name, dir string, files []string, change func([]byte) []byte) error {
	known := map[string]bool{".": true}
	var parents func(dir string)
	parents = func(dir string) {
		if !known[dir] {
			parents(filepath.Dir(dir))
			a.add(dir, fs.ModeDir|0o755, 0, 0, nil)
			known[dir] = true
		}
	}
	for _, file := range files {
		to := filepath.Join(name, file)
		parents(filepath.Dir(to))
		if err := a.addFile(w, to, filepath.Join(dir, file), change); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds a file or a link as addFiles does.
func (a *archive) addFile(w io.Writer, to, from string, change func([]byte) []byte) error {
	info, err := os.Lstat(from)
	if err != nil {
		return err
	}
	var data []byte
	if info.Mode()&fs.ModeSymlink != 0 {
		var target string
		target, err = os.Readlink(from)
		data = []byte(target)
	} else {
		data, err = os.ReadFile(from)
	}
	if err != nil {
		return err
	}
	if change != nil {
		data = change(data)
	}
	if w == nil {
		a.add(to, info.Mode(), 0, 0, data)
		return nil
	}
	a.addDated(to, info.Mode(), info.ModTime().Unix(), 0, 0, data) // Mesa's cache tells a library of OpenCL by its time
	_, err = a.WriteTo(w)
	return err
}
