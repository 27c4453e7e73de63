// Package kmod takes the modules that a guest needs from a Linux distribution's module
// tree: the wanted ones and all that they depend on, decompressed.
//
// A freshly unpacked kernel package has no modules.dep, so dependencies are read where
// depmod reads them: in the .modinfo section of each module. The package owns no state.
package kmod

import (
	"bytes"
	"compress/gzip"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// Name returns the canonical name of the module in a file or a dependency
// list: the kernel takes '-' and '_' for the same character.
func Name(file string) string {
	base := filepath.Base(file)
	if i := strings.Index(base, ".ko"); i > 0 {
		base = base[:i]
	}
	return strings.ReplaceAll(base, "-", "_")
}

// A Tree is the folder lib/modules/<release> of one kernel.
type Tree struct {
	dir   string
	paths map[string]string // canonical name -> path below dir
}

// Open indexes the modules below dir by name. It reads no module.
func Open(dir string) (*Tree, error) {
	t := &Tree{dir: dir, paths: make(map[string]string)}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() || !moduleFile.MatchString(p) {
			return nil
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		t.paths[Name(p)] = rel
		return nil
	})
	if err != nil {
		return nil, err
	}
	if len(t.paths) == 0 {
		return nil, fmt.Errorf("%s holds no kernel modules", dir)
	}
	return t, nil
}

var moduleFile = regexp.MustCompile(`\.ko(\.xz|\.zst|\.gz)?$`)

// Module is one module taken from a tree, and what it says of itself.
type Module struct {
	Name     string
	Data     []byte   // decompressed
	Depends  []string // must be loaded first
	Soft     []string // loaded too where they exist ("softdep=pre: a post: b")
	Firmware []string // files that it may ask for, below lib/firmware
	Magic    string   // the kernel that it is for, and options of that
}

// ErrMissing says that a tree lacks a module.
var ErrMissing = errors.New("no module")

// Closure returns the wanted modules and all they depend on, every module
// after its dependencies.
func (t *Tree) Closure(want ...string) ([]Module, error) {
	var out []Module
	done := make(map[string]bool)
	var visit func(name, wantedBy string, soft bool) error
	visit = func(name, wantedBy string, soft bool) error {
		name = Name(name)
		if done[name] {
			return nil
		}
		rel, ok := t.paths[name]
		if !ok {
			if soft {
				return nil
			}
			return fmt.Errorf("%s has %w %s, which %s needs", t.dir, ErrMissing, name, wantedBy)
		}
		done[name] = true
		m, err := Read(filepath.Join(t.dir, rel))
		if err != nil {
			return err
		}
		for _, d := range m.Depends {
			if err := visit(d, name, false); err != nil {
				return err
			}
		}
		for _, d := range m.Soft {
			if err := visit(d, name, true); err != nil {
				return err
			}
		}
		out = append(out, m)
		return nil
	}
	for _, w := range want {
		if err := visit(w, "a guest", false); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Read reads a module from its file.
func Read(file string) (Module, error) {
	m := Module{Name: Name(file)}
	data, err := os.ReadFile(file)
	if err == nil {
		data, err = decompress(data, filepath.Ext(file))
	}
	if err == nil {
		m.Data = data
		err = m.parse()
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", file, err)
	}
	return m, nil
}

func decompress(data []byte, ext string) (_ []byte, err error) {
	var r io.Reader
	switch ext {
	case ".xz":
		r, err = xz.NewReader(bytes.NewReader(data), xz.DefaultDictMax)
	case ".gz":
		r, err = gzip.NewReader(bytes.NewReader(data))
	case ".zst":
		z, err := zstd.NewReader(nil)
		if err != nil {
			return nil, err
		}
		defer z.Close()
		return z.DecodeAll(data, nil)
	default:
		return data, nil
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
}

// parse reads the module's .modinfo section.
func (m *Module) parse() error {
	f, err := elf.NewFile(bytes.NewReader(m.Data))
	if err != nil {
		return err
	}
	s := f.Section(".modinfo")
	if f.Machine != elf.EM_X86_64 {
		return fmt.Errorf("a module for %v; the guest is an %v", f.Machine, elf.EM_X86_64)
	}
	if s == nil {
		return errors.New("no .modinfo section: not a kernel module")
	}
	data, err := s.Data()
	if err != nil {
		return err
	}
	for entry := range strings.SplitSeq(string(data), "\x00") {
		key, value, _ := strings.Cut(entry, "=")
		switch key {
		case "depends":
			for d := range strings.SplitSeq(value, ",") {
				if d != "" {
					m.Depends = append(m.Depends, Name(d))
				}
			}
		case "vermagic":
			m.Magic = value
		case "firmware":
			m.Firmware = append(m.Firmware, value)
		case "softdep":
			for d := range strings.FieldsSeq(value) {
				if !strings.HasSuffix(d, ":") { // "pre:", "post:"
					m.Soft = append(m.Soft, Name(d))
				}
			}
		}
	}
	return nil
}

// Install writes modules into a folder, in files that sort in the order of loading.
func Install(dir string, mods []Module) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, m := range mods {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d-%s.ko", i, m.Name)), m.Data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// Unsigned returns a module without its signature (include/linux/module_signature.h: 12 bytes, the last four with the
// length, before a line of text). A kernel on an emulated processor hashes for two seconds to check those of nouveau
// and the modules below it.
func Unsigned(module []byte) []byte {
	const line, info = "~Module signature appended~\n", 12
	rest, ok := bytes.CutSuffix(module, []byte(line))
	if !ok || len(rest) < info {
		return module
	}
	n := len(rest) - info
	if size := int(binary.BigEndian.Uint32(rest[len(rest)-4:])); size <= n {
		return rest[:n-size]
	}
	return module
}
