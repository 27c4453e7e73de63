package shim

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

const compilerName = "umbra-jit"

// Compiler builds umbra-jit in a folder, and sees to its library, so that a Machine can run programs as machine
// code.
func Compiler(ctx context.Context, cache *fetch.Cache, dir string) (*jit.Config, error) {
	llvm, err := cache.LLVM(ctx)
	if err != nil {
		return nil, err
	}
	bin := filepath.Join(dir, compilerName)
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, "github.com/umbra-gpu/umbra/cmd/umbra-jit")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build umbra-jit: %w\n%s", err, out)
	}
	return &jit.Config{Program: bin, LLVM: llvm.File, Dependencies: llvm.Dir}, nil
}
