package fetch

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// IsPath tells a Mesa or a kernel of the user's own from a version: a path has a slash.
func IsPath(name string) bool { return strings.Contains(name, "/") }

// prefix is where meson installed a Mesa that somebody built.
type prefix struct {
	dir     string
	libs    string // below dir, has the drivers
	content string // a hash of the names, sizes and times of its files
}

// nouveau is in each library that has the driver of a GF100, whatever was stripped: a message of it.
const nouveau = "nvc0_program"

// What a Mesa installs in its folder of libraries, without those that dispatch to several vendors' drivers.
var (
	mesaDrivers = []string{"libgallium-*.so", "dri/nouveau_dri.so", "libRusticlOpenCL.so.1", "gallium-pipe/pipe_nouveau.so"}
	mesaEntries = []string{"libEGL_mesa.so.0", "libEGL.so.1", "libRusticlOpenCL.so.1"}
	mesaParts   = []string{"libgallium-*.so", "libEGL_mesa.so*", "libRusticlOpenCL.so*", "libMesaOpenCL.so*", "libvulkan_*.so", "dri", "gbm", "gallium-pipe"}
	mesaFacades = []string{"libEGL.so*", "libGLES*.so*", "libgbm.so*", "libglapi.so*", "libnouveau_noop_drm_shim.so"}
)

// openPrefix checks that a folder has a Mesa for NVIDIA's GPUs, with Vulkan or with OpenGL or OpenCL, that can take
// the place of Debian's.
func openPrefix(dir string, base Mesa) (*prefix, error) {
	vulkan := base.Vulkan
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	fail := func(format string, args ...any) (*prefix, error) {
		return nil, fmt.Errorf("Mesa %s: %s", dir, fmt.Sprintf(format, args...))
	}
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return fail("no such folder; give the prefix that meson install wrote to")
	}
	p := &prefix{dir: dir}
	drivers, entries, options := mesaDrivers, mesaEntries, "-Dgallium-drivers=nouveau,llvmpipe -Dgallium-rusticl=true or -Degl=enabled"
	if vulkan {
		drivers, entries, options = []string{"libvulkan_nouveau.so"}, []string{"libvulkan_nouveau.so"}, "-Dvulkan-drivers=nouveau"
	}
	for _, libs := range []string{"lib/x86_64-linux-gnu", "lib64", "lib"} {
		if firstMatch(filepath.Join(dir, libs), slices.Concat(drivers, entries)...) != "" {
			p.libs = libs
			break
		}
	}
	switch in := filepath.Join(dir, p.libs); {
	case p.libs == "" && (exists(filepath.Join(dir, "meson.build")) || exists(filepath.Join(dir, "build.ninja"))):
		return fail("is a folder of sources or of a build; run meson install, and give its prefix")
	case p.libs == "":
		return fail("lib/x86_64-linux-gnu, lib64 and lib have none of %s; configure with %s, and run meson install", strings.Join(drivers, ", "), options)
	case firstMatch(in, entries...) == "":
		return fail("%s has none of %s, by which programs use the driver; configure with %s", p.libs, strings.Join(entries, ", "), options)
	case vulkan && firstMatch(dir, "share/vulkan/icd.d/nouveau_icd*.json") == "":
		return fail("share/vulkan/icd.d/nouveau_icd*.json is missing; run meson install, and give its prefix")
	case !vulkan && !hasNouveau(in):
		return fail("%s has no driver nouveau; configure with %s", p.libs, options)
	}
	// The guest finds the prefix by links, in the places that Mesa was built for.
	for _, at := range []string{p.libs, "share"} {
		if base.Root == "" {
			break // not fetched yet
		}
		if info, err := os.Lstat(filepath.Join(base.Root, dir, at)); err == nil && info.IsDir() {
			return fail("%s is a folder of Debian's, too; install to a prefix of its own", at)
		}
	}
	p.content, err = contentOf(dir)
	return p, err
}

func hasNouveau(libs string) bool {
	return slices.ContainsFunc(match(libs, mesaDrivers...), func(file string) bool {
		data, err := os.ReadFile(file)
		return err == nil && bytes.Contains(data, []byte(nouveau))
	})
}

// contentOf tells one state of a folder from another.
func contentOf(dir string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				fmt.Fprintln(h, name, info.Size(), info.ModTime().UnixNano())
			}
		}
		return err
	})
	return fmt.Sprintf("%x", h.Sum(nil)[:8]), err
}

// ownMesa returns Debian's Mesa with a Mesa of the user's own in its place.
func (c *Cache) ownMesa(ctx context.Context, dir string, base Mesa) (Mesa, error) {
	p, err := openPrefix(dir, base)
	if err != nil {
		return Mesa{}, err
	}
	if !base.Vulkan && !exists(filepath.Join(p.dir, openCL)) {
		c.printf("Mesa %s has no OpenCL, for want of %s; -Dgallium-rusticl=true makes it", p.dir, openCL)
	}
	p.content = fmt.Sprintf("%x", sha256.Sum256(fmt.Append(nil, p.content, base.Packages)))[:16]
	own := c.path("mesa", fmt.Sprintf("own-%x", sha256.Sum256([]byte(base.Root+p.dir)))[:20])
	m := base
	err = c.makeState(ctx, "copying Mesa of "+p.dir, own, p.content, &m, func(tmp string) error {
		root := filepath.Join(tmp, "out", "root")
		if _, err := c.tool(ctx, "", nil, "cp", "-al", base.Root, root); err != nil {
			return err
		}
		m.Version, m.Own = "of "+p.dir, []string{filepath.Join(p.dir, p.libs), filepath.Join(p.dir, "share")}
		m.Packages = append(slices.Clone(base.Packages), Package{Name: p.dir, Version: p.content})
		return p.install(ctx, c, root)
	})
	m.Root = filepath.Join(own, p.content, "root")
	return m, err
}

// install puts the Mesa in the place of Debian's, and makes the paths that it was built with lead there.
func (p *prefix) install(ctx context.Context, c *Cache, root string) error {
	libs, from := filepath.Join(root, libraries), filepath.Join(p.dir, p.libs)
	for _, old := range append(match(libs, mesaParts...), match(root, "etc/OpenCL/vendors", "usr/share/vulkan/icd.d")...) {
		if err := os.RemoveAll(old); err != nil {
			return err
		}
	}
	added := match(from, slices.Concat(mesaParts, mesaFacades)...)
	inside := match(from, "dri/*.so", "gbm/*.so", "gallium-pipe/*.so")
	err := errors.Join(
		c.copy(ctx, libs, "-a", added...),
		c.copy(ctx, filepath.Join(root, "usr/share"), "-a", match(p.dir, "share/drirc.d", "share/glvnd", "share/vulkan")...),
		c.copy(ctx, filepath.Join(root, "etc"), "-a", match(p.dir, "etc/OpenCL")...),
		p.addNeeded(ctx, c, libs, append(added, inside...)),
		p.compilerFiles(ctx, c, root))
	for _, link := range [][2]string{{from, "/" + libraries}, {filepath.Join(p.dir, "share"), "/usr/share"}} {
		if at := filepath.Join(root, link[0]); err == nil && !exists(at) {
			err = errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(link[1], at))
		}
	}
	return err
}

// copy copies files and folders. What it replaces it does not write to: that may be another folder's file, too.
func (c *Cache) copy(ctx context.Context, to, how string, from ...string) error {
	if len(from) == 0 {
		return nil
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	_, err := c.tool(ctx, "", nil, "cp", append([]string{how, "--remove-destination", "-t", to}, from...)...)
	return err
}

// match returns what patterns match in a folder.
func match(dir string, patterns ...string) (found []string) {
	for _, p := range patterns {
		list, _ := filepath.Glob(filepath.Join(dir, p)) // fails only for a bad pattern
		found = append(found, list...)
	}
	return found
}
