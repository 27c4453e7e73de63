package fetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab/kmod"
)

// firmwarePackage is Debian's package with the firmware of NVIDIA's GPUs, in component nonFree.
const (
	firmwarePackage = "firmware-nvidia-graphics"
	nonFree         = "non-free-firmware"
)

// Firmware is a folder like /lib/firmware, with what Debian has for NVIDIA's GPUs.
type Firmware struct {
	Packages []Package `json:"packages"`

	Root string `json:"-"`
}

// Firmware returns the firmware of trixie-backports, which it fetches if it has not been fetched. That of
// trixie itself is older than what kernels ask for.
func (c *Cache) Firmware(ctx context.Context) (f Firmware, err error) {
	dir := c.path("firmware")
	err = c.make(ctx, "fetching firmware of NVIDIA's GPUs", dir, &f, []string{firmwarePackage}, func(tmp string) error {
		a, err := c.openApt(ctx, "apt-firmware", [3]string{"deb", trixie + "-backports", nonFree})
		if err != nil {
			return err
		}
		debs, root := filepath.Join(tmp, "debs"), filepath.Join(tmp, "root")
		if err := os.MkdirAll(debs, 0o755); err != nil {
			return err
		}
		err = a.refreshed(ctx, func() (err error) {
			f.Packages, err = a.get(ctx, debs, "download", "-q", firmwarePackage)
			return err
		})
		if err != nil {
			return err
		}
		return errors.Join(c.unpack(ctx, debs, root), os.Rename(filepath.Join(root, "usr/lib/firmware"), filepath.Join(tmp, "out", "root")))
	})
	f.Root = filepath.Join(dir, "root")
	return f, err
}

// Files finds files by the names that a driver asks for: each as it is or compressed, and, for a link,
// its target too.
func (f *Firmware) Files(names []string) (files []string, err error) {
	root, err := filepath.EvalSymlinks(f.Root)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		found := firstMatch(root, name, name+".xz", name+".zst")
		if found == "" {
			return nil, fmt.Errorf("%s %s has no %s, which this kernel's nouveau asks for; take another kernel, or remove %s to fetch the package anew",
				firmwarePackage, versionOf(f.Packages, firmwarePackage), name, filepath.Dir(f.Root))
		}
		target, err := filepath.EvalSymlinks(found)
		if err != nil {
			return nil, err
		}
		for _, file := range []string{found, target} {
			rel, err := filepath.Rel(root, file)
			if err != nil {
				return nil, err
			}
			if !filepath.IsLocal(rel) {
				return nil, fmt.Errorf("%s is a link to %s, outside of %s", found, target, root)
			}
			files = append(files, rel)
		}
	}
	slices.Sort(files)
	return slices.Compact(files), nil
}

// Firmware lists the files that the kernel's nouveau may ask for on a chip such as gh100. None is
// listed if it does not know the chip.
func (k *Kernel) Firmware(chip string) (names []string, err error) {
	nouveau := firstMatch(k.Modules, "*-nouveau.ko")
	if k.Modules == "" || nouveau == "" {
		return nil, fmt.Errorf("kernel %s has no module nouveau, which names its firmware: set %s to its folder of modules", k.Release, EnvKernelModules)
	}
	m, err := kmod.Read(nouveau)
	for _, name := range m.Firmware {
		if strings.HasPrefix(name, "nvidia/"+chip+"/") {
			names = append(names, name)
		}
	}
	return names, err
}
