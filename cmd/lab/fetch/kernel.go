package fetch

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

const (
	// EnvKernel names a bzImage to use instead of the fetched kernel of the
	// same version.
	EnvKernel = "UMBRA_KERNEL"
	// EnvKernelModules names its lib/modules/<release>; without it, that of
	// this machine is used if it has one.
	EnvKernelModules = "UMBRA_KERNEL_MODULES"
)

// GuestModules are the modules a guest needs; what they depend on comes along.
var GuestModules = []string{"nouveau"}

// Kernel is a Linux kernel to boot.
type Kernel struct {
	Release  string    `json:"release"` // uname -r
	Version  string    `json:"version"` // of the package; "" for a user's own
	Packages []Package `json:"packages,omitempty"`
	Loadable []string  `json:"modules,omitempty"` // names of the modules, each after what it needs

	Image   string `json:"-"` // an ELF kernel with a PVH entry point; the user's own is a bzImage
	BzImage string `json:"-"` // the same, compressed
	Modules string `json:"-"` // a folder of modules in the order of loading; "" for none
}

// matches says whether release is of the wanted version: the same numbers as
// far as the wanted version gives them.
func matches(release, want string) bool {
	rest, ok := strings.CutPrefix(release, want)
	return ok && (rest == "" || rest[0] < '0' || rest[0] > '9')
}

// Kernel returns the newest kernel of a version such as "6.12": the user's
// ($UMBRA_KERNEL) if that is of this version, else the cached one, else one
// that it fetches. The version "" is the user's, whatever it is, or 6.12.
func (c *Cache) Kernel(ctx context.Context, version string) (Kernel, error) {
	if image := os.Getenv(EnvKernel); image != "" {
		release, err := imageRelease(image)
		if err != nil {
			return Kernel{}, fmt.Errorf("%s: %w", EnvKernel, err)
		}
		if matches(release, version) || version == "" {
			k, err := c.OwnKernel(ctx, image, os.Getenv(EnvKernelModules))
			if err != nil {
				err = fmt.Errorf("%s, %s: %w", EnvKernel, EnvKernelModules, err)
			}
			return k, err
		}
	}
	if version == "" {
		version = DefaultKernel
	}
	if err := checkVersion(version); err != nil {
		return Kernel{}, err
	}
	dir := c.path("kernels", version)
	var k Kernel
	if err := c.make(ctx, "fetching Linux "+version, dir, &k, nil, func(tmp string) error { return c.fetchKernel(ctx, tmp, version, &k) }); err != nil {
		return Kernel{}, err
	}
	k.Image, k.BzImage = filepath.Join(dir, "vmlinux"), filepath.Join(dir, "vmlinuz")
	k.Modules = filepath.Join(dir, "modules", k.Release)
	return k, nil
}

// CheckKernel says what is wrong with a version, or the path of a bzImage, without asking a mirror.
func CheckKernel(version string) error {
	if IsPath(version) {
		_, err := imageRelease(version)
		return err
	}
	if version == "" {
		return nil
	}
	return checkVersion(version)
}

func checkVersion(version string) error {
	if !kernelVersion.MatchString(version) {
		return fmt.Errorf("kernel version %q: want numbers such as %s", version, DefaultKernel)
	}
	var major, minor int
	if n, _ := fmt.Sscanf(version, "%d.%d", &major, &minor); n == 2 && (major < 6 || major == 6 && minor == 0) {
		return fmt.Errorf("kernel %s: Debian 12 and 13 have none older than 6.1; 6.1, 6.12, 6.18, 7.2 and 7.3 are known, or give the path of a bzImage", version)
	}
	return nil
}

// DefaultKernel is the version used where none is asked for.
const DefaultKernel = "6.12"

var kernelVersion = regexp.MustCompile(`^[0-9]+(\.[0-9]+){1,3}$`)

func (c *Cache) fetchKernel(ctx context.Context, tmp, version string, k *Kernel) error {
	a, err := c.openApt(ctx, "apt", binaries...)
	if err != nil {
		return err
	}
	debs := filepath.Join(tmp, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	err = a.refreshed(ctx, func() error {
		list, err := a.run(ctx, "", "apt-cache", "pkgnames", "linux-")
		if err != nil {
			return err
		}
		names, err := kernelPackages(ctx, strings.Fields(list), version)
		if err != nil {
			return err
		}
		k.Packages, err = a.get(ctx, debs, append([]string{"download", "-q"}, names...)...)
		k.Version = versionOf(k.Packages, names[0])
		return err
	})
	if err != nil {
		return err
	}
	root := filepath.Join(tmp, "root")
	if err := c.unpack(ctx, debs, root); err != nil {
		return err
	}
	return k.collect(root, filepath.Join(tmp, "out"))
}

// imagePackage matches the plain kernel's packages: the signed one and, where
// a signed one is not out yet, the unsigned; not the cloud and real-time
// flavours, which have no nouveau or another scheduler.
var imagePackage = regexp.MustCompile(`^linux-image-([0-9][0-9.]*(?:[-+~][0-9a-z.]+)?)-amd64(-unsigned)?$`)

// series is the start of a version that people name.
var series = regexp.MustCompile(`^[0-9]+\.[0-9]+`)

// kernelPackages picks the packages of the newest kernel of a version: its image, and the parts that newer
// kernels are split into. All have the kernel's version in their names.
func kernelPackages(ctx context.Context, all []string, version string) ([]string, error) {
	var best []string // the match of its image
	has := make(map[string]bool)
	for _, name := range slices.Sorted(slices.Values(all)) { // of one version the signed package, which people run, comes first
		m := imagePackage.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		has[series.FindString(m[1])] = true
		if matches(m[1], version) && (best == nil || newer(ctx, m[1], best[1])) {
			best = m
		}
	}
	if best == nil {
		return nil, fmt.Errorf("the mirror has no kernel %s; it has %s; set %s to a kernel of your own", version, strings.Join(slices.Sorted(maps.Keys(has)), ", "), EnvKernel)
	}
	names := []string{best[0]}
	for _, part := range []string{"base", "binary", "modules"} {
		name := "linux-" + part + "-" + best[1] + "-amd64"
		if same := name + best[2]; slices.Contains(all, same) {
			names = append(names, same)
		} else if slices.Contains(all, name) {
			names = append(names, name)
		}
	}
	return names, nil
}

// newer compares two versions by Debian's order.
func newer(ctx context.Context, a, b string) bool {
	return exec.CommandContext(ctx, "dpkg", "--compare-versions", a, "gt", b).Run() == nil
}

// collect takes the image and the modules out of an unpacked package.
func (k *Kernel) collect(root, out string) (err error) {
	image := firstMatch(root, "boot/vmlinuz-*", "usr/lib/modules/*/vmlinuz", "lib/modules/*/vmlinuz")
	modules := firstMatch(root, "usr/lib/modules/*/kernel", "lib/modules/*/kernel")
	if image == "" || modules == "" {
		return errors.New("the package holds no vmlinuz, or no modules")
	}
	if k.Release, err = imageRelease(image); err != nil {
		return err
	}
	elf, err := unpackImage(image)
	if err != nil {
		return err
	}
	err = errors.Join(os.Rename(image, filepath.Join(out, "vmlinuz")), os.WriteFile(filepath.Join(out, "vmlinux"), elf, 0o644))
	return errors.Join(err, k.takeModules(filepath.Dir(modules), filepath.Join(out, "modules", k.Release)))
}

// unpackImage returns the ELF kernel inside a bzImage (Linux x86 boot protocol 2.08).
// QEMU boots it by its PVH entry point. Under TCG that halves the time of a boot,
// because the guest need not decompress itself.
func unpackImage(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	if len(data) < 0x250 {
		return nil, fmt.Errorf("%s is not a bzImage", file)
	}
	word := func(at int) int { return int(binary.LittleEndian.Uint32(data[at:])) }
	begin := (1+cmp.Or(int(data[0x1f1]), 4))*512 + word(0x248)
	end := begin + word(0x24c)
	if end > len(data) || end-begin < 8 {
		return nil, fmt.Errorf("%s: the kernel lies at %#x to %#x, beyond the end", file, begin, end)
	}
	payload := data[begin : end-4] // the build appends the unpacked length
	var r io.Reader
	switch {
	case bytes.HasPrefix(payload, []byte("\xfd7zXZ\x00")):
		r, err = xz.NewReader(bytes.NewReader(payload), xz.DefaultDictMax)
	case bytes.HasPrefix(payload, []byte("\x1f\x8b")):
		r, err = gzip.NewReader(bytes.NewReader(payload))
	case bytes.HasPrefix(payload, []byte("\x28\xb5\x2f\xfd")):
		var z *zstd.Decoder
		if z, err = zstd.NewReader(bytes.NewReader(payload)); err == nil {
			defer z.Close()
			r = z
		}
	default:
		err = fmt.Errorf("unknown compression %x", payload[:6])
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	elf, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return elf, nil
}
