package fetch

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Mesa is a folder with Debian's Mesa, OpenCL and the programs that it needs, which runs
// without being installed.
type Mesa struct {
	Version  string    `json:"version"`
	Packages []Package `json:"packages"`

	Root   string `json:"-"`
	Tools  bool   `json:"-"` // it has clpeak, piglit and a C compiler
	Vulkan bool   `json:"-"` // it has Vulkan instead of OpenCL and OpenGL

	patterns []string // of what a guest has of it

	Own []string `json:"own,omitempty"` // paths that the user's own was built with
}

// MesaSuites has the suite of each version of Mesa.
var MesaSuites = map[string]string{"25": trixie, "26": trixie + "-backports"}

// mesaPackages are OpenCL and OpenGL without a window system, and the shim that stands for a
// device. The first has the version.
var mesaPackages = []string{
	"mesa-opencl-icd", "mesa-drm-shim", "ocl-icd-libopencl1", "opencl-c-headers", "clinfo",
	"libgl1-mesa-dri", "libegl-mesa0", "libegl1", "libgles2", "libopengl0", "libgbm1", "coreutils",
}

// toolPackages are a benchmark, tests, and a C compiler with the headers that it needs for OpenCL.
var toolPackages = []string{"clpeak", "piglit", "tcc", "libc6-dev", "ocl-icd-opencl-dev"}

// vulkanPackages are Vulkan without a window system. The first has the version.
var vulkanPackages = []string{"mesa-vulkan-drivers", "libvulkan-dev", "vulkan-tools"}

// Mesa returns a version of Mesa, which it fetches if it has not been fetched. The folder of a Mesa that
// somebody built is a version, too: it takes the place of Debian's.
func (c *Cache) Mesa(ctx context.Context, version string) (Mesa, error) {
	return c.mesa(ctx, version, edition{packages: mesaPackages, files: guestFiles})
}

// Tools is Mesa with clpeak, piglit and a C compiler: 3 GB.
func (c *Cache) Tools(ctx context.Context, version string) (Mesa, error) {
	m, err := c.mesa(ctx, version, edition{kind: "-tools", packages: slices.Concat(mesaPackages, toolPackages), files: slices.Concat(guestFiles, toolFiles)})
	m.Tools = true
	return m, err
}

// Vulkan is Mesa for GPUs that it drives by Vulkan only.
func (c *Cache) Vulkan(ctx context.Context, version string) (Mesa, error) {
	return c.mesa(ctx, version, edition{kind: "-vulkan", vulkan: true, packages: vulkanPackages, files: vulkanFiles})
}

// VulkanMark is that Mesa with vkmark, which draws scenes and counts frames.
func (c *Cache) VulkanMark(ctx context.Context, version string) (Mesa, error) {
	return c.mesa(ctx, version, edition{kind: "-vkmark", vulkan: true, packages: slices.Concat(vulkanPackages, []string{"vkmark"}), files: slices.Concat(vulkanFiles, markFiles)})
}

// otherPackages are llama.cpp with its tests, which hold GPUs to the processor, what OpenCL and OpenGL by Vulkan need, and
// VkFFT's headers with the compiler that its programs carry and the library that they are held to.
var otherPackages = []string{
	"libggml0-backend-vulkan", "llama.cpp-tools", "llama.cpp-tests", "mesa-opencl-icd", "ocl-icd-libopencl1", "opencl-c-headers", "clinfo",
	"libgl1-mesa-dri", "libegl-mesa0", "libegl1", "libgles2", "libopengl0", "libgbm1",
	"libvkfft-dev", "glslang-dev", "libfftw3-dev", "glslang-tools",
}

// Others is the newest Mesa, of Debian's unstable suite, with programs of others that compute on a GPU.
func (c *Cache) Others(ctx context.Context) (Mesa, error) {
	m, err := c.fetchMesa(ctx, sid, sid, slices.Concat(vulkanPackages, otherPackages))
	m.patterns = slices.Concat(guestFiles, vulkanFiles, otherFiles)
	return m, err
}

// Peers is Mesa with PoCL, another OpenCL for processors, to compare with: 1 GB.
func (c *Cache) Peers(ctx context.Context, version string) (Mesa, error) {
	return c.mesa(ctx, version, edition{kind: "-pocl", packages: slices.Concat(mesaPackages, []string{"pocl-opencl-icd"}), files: guestFiles})
}

// edition is what a Mesa comes with.
type edition struct {
	kind            string // ends the name of its folder
	vulkan          bool   // instead of OpenCL and OpenGL
	packages, files []string
}

func (c *Cache) mesa(ctx context.Context, version string, e edition) (m Mesa, err error) {
	suite, ok := MesaSuites[version]
	if !ok && IsPath(version) {
		rest := "25" // of the system
		if e.vulkan {
			rest = "26"
		}
		base, err := c.mesa(ctx, rest, e)
		if err != nil {
			return base, err
		}
		return c.ownMesa(ctx, version, base)
	}
	if err := CheckMesa(version, e.vulkan); err != nil {
		return Mesa{}, err
	}
	m, err = c.fetchMesa(ctx, suite, version+e.kind, e.packages)
	m.Vulkan, m.patterns = e.vulkan, e.files
	return m, err
}

// CheckMesa says what is wrong with a version of Mesa, or the folder of one, without fetching it.
func CheckMesa(version string, vulkan bool) error {
	if IsPath(version) {
		_, err := openPrefix(version, Mesa{Vulkan: vulkan})
		return err
	}
	if _, ok := MesaSuites[version]; !ok && version != "" {
		return fmt.Errorf("Mesa %q: want 25, 26, or the folder of your own, with a slash in its name", version)
	}
	return nil
}

func (c *Cache) fetchMesa(ctx context.Context, suite, folder string, packages []string) (Mesa, error) {
	dir := c.path("mesa", folder)
	var m Mesa
	err := c.make(ctx, "fetching Mesa "+folder, dir, &m, packages, func(tmp string) (err error) {
		root := filepath.Join(tmp, "out", "root")
		if m.Packages, err = c.fetchTree(ctx, tmp, root, suite, packages...); err != nil {
			return err
		}
		m.Version = versionOf(m.Packages, packages[0])
		return furnish(root)
	})
	if err != nil {
		return Mesa{}, err
	}
	m.Root = filepath.Join(dir, "root")
	return m, nil
}

// LibC is the C library of the same system alone.
func (m *Mesa) LibC() Mesa {
	out := *m
	out.patterns = []string{loader}
	for _, part := range LibCParts {
		out.patterns = append(out.patterns, libraries+"/"+part)
	}
	return out
}

// furnish adds what Debian's installer would: links, and places to mount on.
func furnish(root string) error {
	for _, d := range append([]string{WorkDir}, mounts...) {
		if err := os.MkdirAll(filepath.Join(root, d), 0o755); err != nil {
			return err
		}
	}
	for _, d := range []string{"bin", "sbin", "lib", "lib64"} {
		if at := filepath.Join(root, d); !exists(at) {
			if err := os.Symlink(filepath.Join("usr", d), at); err != nil {
				return err
			}
		}
	}
	return nil
}

var mounts = []string{"/proc", "/sys", "/dev", "/tmp"}

// WorkDir is where a command in the folder finds its work folder.
const WorkDir = "/mnt"

// Command is a command in the folder: it sees the folder as the root directory, this
// machine's processes and devices, and the work folder. No root is needed if the system lets
// users have namespaces of their own.
func (m *Mesa) Command(ctx context.Context, work string, env []string, argv ...string) *exec.Cmd {
	var script strings.Builder
	script.WriteString("PATH=$PATH:/usr/sbin:/sbin; ") // of chroot, which a user's PATH on Debian lacks
	for _, d := range mounts {
		fmt.Fprintf(&script, "mount --rbind %s \"$0%s\" || exit 125; ", d, d)
	}
	fmt.Fprintf(&script, "mount --bind \"$1\" \"$0%s\" || exit 125; shift; exec chroot \"$0\" \"$@\"", WorkDir)
	args := slices.Concat([]string{"--user", "--map-root-user", "--mount", "sh", "-c", script.String(), m.Root, work, "/usr/bin/env"}, env, argv)
	return exec.CommandContext(ctx, "unshare", args...)
}
