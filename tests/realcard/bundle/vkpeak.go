package main

import (
	"context"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// addVkpeak builds vkpeak from the folder that VKPEAK names, its sources with their submodule ncnn, and marks in dir that the
// image has it. It returns the programs to add. Debian has neither of the two, but their compiler of shaders.
// The C and C++ libraries are the guest's, as for the other programs.
func addVkpeak(ctx context.Context, dir, built string, m fetch.Mesa) ([]string, error) {
	sources := os.Getenv("VKPEAK")
	if sources == "" {
		return nil, nil
	}
	usr := filepath.Join(m.Root, "usr")
	libraries := filepath.Join(usr, "lib/x86_64-linux-gnu")
	err := run(ctx, "", "cmake", "-S", sources, "-B", built, "-DCMAKE_BUILD_TYPE=Release", "-DNCNN_SIMPLEVK=ON", "-DNCNN_AVX=OFF",
		"-DNCNN_SYSTEM_GLSLANG=ON", "-Dglslang_DIR="+filepath.Join(libraries, "cmake/glslang"), "-DCMAKE_PREFIX_PATH="+usr,
		"-DCMAKE_EXE_LINKER_FLAGS=-Wl,--allow-shlib-undefined -L"+libraries,
		"-DCMAKE_CXX_STANDARD_LIBRARIES="+filepath.Join(libraries, "libstdc++.so.6")+" "+filepath.Join(libraries, "libc.so.6"))
	if err == nil {
		err = run(ctx, "", "cmake", "--build", built, "--parallel", strconv.Itoa(runtime.NumCPU()))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "others.vkpeak"), nil, 0o644)
	}
	return []string{filepath.Join(built, "vkpeak")}, err
}
