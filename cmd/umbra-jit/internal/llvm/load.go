package llvm

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/ebitengine/purego"
)

// hostLibraries are those of the C library. A process can have only one, and Go's part of it is loaded.
var hostLibraries = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "ld-linux-x86-64.so.2"}

// loadWithDependencies opens a library whose own dependencies are in dir: the loader takes a library that
// is already open, whatever folder it came from.
func loadWithDependencies(file, dir string) (uintptr, error) {
	var order []string
	seen := map[string]bool{}
	var visit func(file string) error
	visit = func(file string) error {
		if seen[file] {
			return nil
		}
		seen[file] = true
		f, err := elf.Open(file)
		if err != nil {
			return err
		}
		needed, err := f.ImportedLibraries()
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, name := range needed {
			own := filepath.Join(dir, name)
			if _, err := os.Stat(own); err != nil || slices.Contains(hostLibraries, name) {
				continue // the system has it, or the loader says that nobody has
			}
			if err := visit(own); err != nil {
				return err
			}
		}
		order = append(order, file)
		return nil
	}
	if dir == "" {
		order = []string{file}
	} else if err := visit(file); err != nil {
		return 0, err
	}
	var handle uintptr
	for _, f := range order {
		h, err := purego.Dlopen(f, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err != nil {
			return 0, fmt.Errorf("loading %s: %w", f, err)
		}
		handle = h
	}
	return handle, nil
}
