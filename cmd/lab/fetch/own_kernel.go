package fetch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/umbra-gpu/umbra/cmd/lab/kmod"
)

// OwnKernel returns a kernel that somebody built: its bzImage, and its lib/modules/RELEASE, without which that of
// this machine is taken if there is one. nouveau must be among the modules, or built in.
func (c *Cache) OwnKernel(ctx context.Context, image, modules string) (Kernel, error) {
	image, err := filepath.Abs(image)
	if err != nil {
		return Kernel{}, err
	}
	release, err := imageRelease(image)
	if err != nil {
		return Kernel{}, err
	}
	k := Kernel{Release: release, Image: image, BzImage: image}
	if usual := filepath.Join("/lib/modules", release); modules == "" && exists(usual) {
		modules = usual
	}
	if modules == "" {
		switch elf, err := unpackImage(image); {
		case err != nil:
			c.printf("%v: whether nouveau is built in is not known; if it is not, give the folder of its modules (--modules, or %s)", err, EnvKernelModules)
		case !bytes.Contains(elf, []byte("nouveau.modeset")):
			return k, fmt.Errorf("%s: the kernel %s has no nouveau built in; give the folder of its modules (--modules, or %s), as make modules_install writes it: lib/modules/%s",
				image, release, EnvKernelModules, release)
		}
		return k, nil
	}
	if builtIn(modules) {
		return k, nil
	}
	// The user may build them again at any time, also while an image is made of these.
	state, err := contentOf(modules)
	if err != nil {
		return Kernel{}, err
	}
	dir := c.path("kernels", "user", release)
	err = c.makeState(ctx, "copying modules of Linux "+release, dir, state, &k, func(tmp string) error {
		return k.takeModules(modules, filepath.Join(tmp, "out", "modules"))
	})
	if errors.Is(err, kmod.ErrMissing) {
		err = fmt.Errorf("%w; enable CONFIG_DRM_NOUVEAU, and run make modules_install", err)
	}
	k.Modules = filepath.Join(dir, state, "modules")
	return k, err
}

// builtIn reports whether the kernel of a folder of modules has nouveau without a module.
func builtIn(modules string) bool {
	list, err := os.ReadFile(filepath.Join(modules, "modules.builtin"))
	return err == nil && bytes.Contains(list, []byte("/nouveau.ko"))
}

// takeModules copies what a guest needs of a kernel's modules.
func (k *Kernel) takeModules(from, to string) error {
	tree, err := kmod.Open(from)
	if err != nil {
		return err
	}
	mods, err := tree.Closure(GuestModules...)
	if err != nil {
		return err
	}
	k.Loadable = nil
	for _, m := range mods {
		if built, _, _ := strings.Cut(m.Magic, " "); built != k.Release {
			return fmt.Errorf("%s: module %s is for Linux %q, and the kernel is %s; give the folder of that kernel's modules", from, m.Name, built, k.Release)
		}
		k.Loadable = append(k.Loadable, m.Name)
	}
	return kmod.Install(to, mods)
}

// releases matches a kernel's release. It becomes the name of a folder.
var releases = regexp.MustCompile(`^[0-9][A-Za-z0-9._+~-]*$`)

// imageRelease reads a bzImage's release from its header (Linux x86 boot
// protocol 2.0: "HdrS" at 202h; the word at 20Eh plus 200h is the offset of a
// string that starts with it), and sees that it is for 64 bits (bit 0 of 236h).
func imageRelease(file string) (string, error) {
	head, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	const remedy = "give arch/x86/boot/bzImage of a kernel for x86-64, or a /boot/vmlinuz"
	switch {
	case bytes.HasPrefix(head, []byte("\x7fELF")):
		return "", fmt.Errorf("%s is an ELF file, as vmlinux is; %s", file, remedy)
	case len(head) > 0x40 && (string(head[0x38:0x3c]) == "ARM\x64" || string(head[0x38:0x3c]) == "RSC\x05"):
		return "", fmt.Errorf("%s is a kernel for ARM or RISC-V; %s", file, remedy)
	case len(head) < 0x240 || string(head[0x202:0x206]) != "HdrS":
		return "", fmt.Errorf("%s is not a bzImage (no HdrS at 202h); %s", file, remedy)
	case head[0x236]&1 == 0:
		return "", fmt.Errorf("%s is a kernel for 32 bits; %s", file, remedy)
	}
	at := int(binary.LittleEndian.Uint16(head[0x20e:])) + 0x200
	if at >= len(head) {
		return "", fmt.Errorf("%s: the header's version string lies at %#x, beyond the header", file, at)
	}
	text, _, _ := bytes.Cut(head[at:], []byte{0})
	release, _, _ := strings.Cut(string(text), " ")
	if !releases.MatchString(release) {
		return "", fmt.Errorf("%s: the header's version string begins with %q; want a release such as 6.19.0-own", file, release)
	}
	return release, nil
}
