package fetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// openCL is the file by which programs find Mesa's OpenCL.
const openCL = "etc/OpenCL/vendors/rusticl.icd"

// shaderRuns bounds how often Mesa is run to fill its cache: it ends without waiting for all that it compiled.
const shaderRuns = 5

// Shaders returns a user's cache folder with OpenCL's library as Mesa compiles it for a GF100, and its files, none for a
// Mesa without OpenCL. Compiling it takes two seconds on this machine, and more than ten on one that QEMU emulates.
func (m *Mesa) Shaders(ctx context.Context) (dir string, files []string, err error) {
	if !exists(filepath.Join(m.Root, openCL)) {
		return "", nil, nil
	}
	dir = filepath.Join(filepath.Dir(m.Root), "cache")
	if files = regularFiles(dir); len(files) == 0 {
		err = m.compileLibrary(ctx, dir)
		if files = regularFiles(dir); len(files) > 0 {
			err = nil // another process may have been quicker
		}
	}
	return dir, files, err
}

// regularFiles are the files in a folder that can be listed.
func regularFiles(dir string) (files []string) {
	_ = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, name)
			files = append(files, rel)
		}
		return nil
	})
	return files
}

func (m *Mesa) compileLibrary(ctx context.Context, dir string) error {
	work, err := os.MkdirTemp(filepath.Dir(dir), "cache-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	// Mesa's own noop shim is a GF100 without a kernel's driver.
	env := []string{"OCL_ICD_VENDORS=rusticl.icd", "RUSTICL_ENABLE=nouveau", "LD_PRELOAD=libnouveau_noop_drm_shim.so", "NOUVEAU_CHIPSET=c0",
		"MESA_LOADER_DRIVER_OVERRIDE=nouveau", "XDG_CACHE_HOME=" + WorkDir}
	for i, size := 0, int64(-1); i < shaderRuns && treeSize(work) != size; i++ {
		size = treeSize(work)
		if out, err := m.Command(ctx, work, env, "/usr/bin/clinfo", "--list").CombinedOutput(); err != nil {
			return fmt.Errorf("clinfo: %w\n%s", err, out)
		}
	}
	if len(regularFiles(work)) == 0 {
		return errors.New("clinfo: Mesa compiled nothing")
	}
	return os.Rename(work, dir)
}
