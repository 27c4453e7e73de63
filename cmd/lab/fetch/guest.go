package fetch

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// libraries is where Debian keeps those of amd64.
const libraries = "usr/lib/x86_64-linux-gnu"

// loader is what programs name as their interpreter.
const loader = "usr/lib64/ld-linux-x86-64.so.2"

// guestFiles are what a guest's programs are started with, or open by name: OpenCL by
// rusticl, and OpenGL without a window system. The libraries that these need come along. The
// whole folder would take twice the guest's memory.
var guestFiles = []string{
	loader,
	"usr/bin/clinfo",
	openCL,
	libraries + "/libOpenCL.so.1",
	libraries + "/libRusticlOpenCL.so.1",
	"usr/lib/clc/spirv*", // the OpenCL C library
	"usr/lib/llvm-*/lib/clang/*/include/opencl-c*.h",

	libraries + "/libEGL.so.1",
	libraries + "/libEGL_mesa.so.0",
	libraries + "/libGLESv2.so.2",
	libraries + "/libOpenGL.so.0",
	"usr/share/glvnd/egl_vendor.d/*",
	"usr/share/drirc.d/*",
}

// ownFiles are what a Mesa of the user's own may have elsewhere.
var ownFiles = []string{"usr/lib/clang/*/include/opencl-c*.h"}

// vulkanFiles are Vulkan's loader, vulkaninfo, and the driver of nouveau's GPUs.
var vulkanFiles = []string{
	loader,
	"usr/bin/vulkaninfo",
	"usr/share/vulkan/icd.d/nouveau_icd*.json",
	libraries + "/libvulkan.so.1",
	libraries + "/libvulkan_nouveau.so",
}

// markFiles are vkmark for a GPU without a display.
var markFiles = []string{
	"usr/bin/vkmark",
	libraries + "/vkmark/headless.so",
	"usr/share/vkmark",
}

// otherFiles are llama.cpp's tests with the parts that they load by name, and FFTW.
var otherFiles = []string{
	"usr/libexec/x86_64-linux-gnu/ggml/test-backend-ops",
	"usr/libexec/x86_64-linux-gnu/llama.cpp-tests/test-llama-archs",
	libraries + "/ggml/backends0/libggml-vulkan.so",
	libraries + "/ggml/backends0/libggml-cpu-x64.so",
	libraries + "/libfftw3.so.3",
}

// PiglitFolder is where Debian has piglit, in the folder of Tools. Tests are named by their paths
// in it.
const PiglitFolder = "/usr/lib/x86_64-linux-gnu/piglit"

// toolFiles are what a guest has of the tools: of piglit's 2 GB of tests, those of OpenCL and some
// of OpenGL's compute shaders. Of a folder, it has all files.
var toolFiles = []string{
	"usr/bin/clpeak",

	PiglitFolder + "/bin/cl-*",
	PiglitFolder + "/bin/shader_runner",
	PiglitFolder + "/*tests/cl",
	PiglitFolder + "/tests/spec/arb_compute_shader",

	"usr/bin/tcc",
	libraries + "/tcc",
	"usr/include/*.h",
	"usr/include/CL",
	"usr/include/x86_64-linux-gnu",
	"usr/include/asm-generic",
	"usr/include/linux/*.h",
	libraries + "/*crt[1in].o",
	libraries + "/lib[cm].so",
	libraries + "/libc_nonshared.a",
	libraries + "/libpthread.a",
	libraries + "/libOpenCL.so",
}

// GuestFiles lists the part of the folder that goes into a guest's image: files, and links
// with their targets.
func (m *Mesa) GuestFiles() ([]string, error) {
	patterns := m.patterns
	links := []string{"bin", "lib", "lib64", "sbin"}
	if m.Own != nil { // it may have OpenGL alone, or OpenCL alone
		patterns = slices.DeleteFunc(slices.Concat(patterns, ownFiles), func(p string) bool { return firstMatch(m.Root, p) == "" })
		for _, path := range m.Own {
			links = append(links, path[1:])
		}
	}
	found, err := closure(m.Root, patterns)
	if err != nil {
		return nil, fmt.Errorf("Mesa %s: %w", m.Version, err)
	}
	return slices.Sorted(slices.Values(append(found, links...))), nil
}

// closure lists files by patterns, all of a folder, with what each refers to.
func closure(root string, patterns []string) ([]string, error) {
	files := map[string]bool{}
	var queue []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		if len(found) == 0 {
			return nil, fmt.Errorf("there is no %s", pattern)
		}
		queue = append(queue, found...)
	}
	for ; len(queue) > 0; queue = queue[1:] {
		name, err := filepath.Rel(root, queue[0])
		if err != nil {
			return nil, err
		}
		if files[name] {
			continue
		}
		info, err := os.Lstat(queue[0])
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			inside, err := filepath.Glob(filepath.Join(queue[0], "*"))
			if err != nil {
				return nil, err
			}
			queue = append(queue, inside...)
			continue
		}
		files[name] = true
		more, err := needs(root, queue[0])
		if err != nil {
			return nil, err
		}
		queue = append(queue, more...)
	}
	return slices.Sorted(maps.Keys(files)), nil
}

// needs returns what a file refers to: the target of a link, or the libraries of a
// program.
func needs(root, file string) ([]string, error) {
	if target, err := os.Readlink(file); err == nil {
		if path.IsAbs(target) {
			return []string{filepath.Join(root, target)}, nil
		}
		return []string{filepath.Join(filepath.Dir(file), target)}, nil
	}
	f, err := elf.Open(file)
	if format := new(elf.FormatError); errors.As(err, &format) || errors.Is(err, io.EOF) {
		return nil, nil // not a program
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	names, err := f.ImportedLibraries()
	if err != nil {
		return nil, err
	}
	folders, err := f.DynString(elf.DT_RUNPATH) // piglit's libraries have a folder of their own
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range names {
		at := filepath.Join(root, libraries, n)
		for _, folder := range folders {
			if own := filepath.Join(root, folder, n); exists(own) {
				at = own
			}
		}
		out = append(out, at)
	}
	return out, nil
}

// compileLibraries are those that programs may use. glslang is a part of the program, with what it needs of C++ and of a C
// library as new as itself.
var compileLibraries = []string{
	"libOpenCL.so.1", "libEGL.so.1", "libOpenGL.so.0", "libvulkan.so.1", "libfftw3.so.3",
	"libglslang.a", "libSPIRV.a", "libSPIRV-Tools-opt.a", "libSPIRV-Tools.a", "libstdc++.so.6", "libc.so.6",
}

// Compile compiles a C source against the folder's OpenCL and OpenGL, or Vulkan, with this machine's
// compiler, whose C library may be older than Debian's, not newer. Headers are those beside
// the source and those in other folders that flags name.
func (m *Mesa) Compile(ctx context.Context, source, out string, flags ...string) error {
	if _, err := exec.LookPath("gcc"); err != nil {
		return fmt.Errorf("compiling %s: %w; install gcc and libc6-dev", filepath.Base(source), err)
	}
	// No -L: among the tools is a C library for the linker, which names places of Debian.
	in := filepath.Join(m.Root, libraries)
	args := append(flags, "-O2", "-Wall", "-o", out, "-x", "c", source, "-x", "none", "-idirafter", filepath.Join(m.Root, "usr/include"),
		"-idirafter", filepath.Join(m.Root, "usr/include/glslang/Include"),
		"-Wl,--as-needed", "-Wl,--allow-shlib-undefined", "-lm")
	for _, lib := range compileLibraries {
		if exists(filepath.Join(in, lib)) {
			args = append(args, filepath.Join(in, lib))
		}
	}
	if said, err := exec.CommandContext(ctx, "gcc", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("gcc %s: %w\n%s", filepath.Base(source), err, strings.TrimSpace(string(said)))
	}
	return nil
}
