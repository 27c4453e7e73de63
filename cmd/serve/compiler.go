package serve

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/cpu"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
)

const (
	compilerName = "umbra-jit"
	loaderCache  = "/etc/ld.so.cache"
)

// compilerOf is what runs programs as machine code, nil if nothing does.
func compilerOf(c *config.Config, log *slog.Logger) (*jit.Config, error) {
	o := &c.Card
	program := o.Compiler
	switch program {
	case config.CompilerOff:
		return nil, nil
	case config.CompilerAuto:
		if program = FindCompiler(); program == "" {
			return nil, nil
		}
	}
	program, err := filepath.Abs(program)
	if err == nil {
		_, err = exec.LookPath(program)
	}
	if err != nil {
		return nil, &config.Error{Where: c.Where("card.compiler"), Value: o.Compiler, Reason: err.Error() + "; want auto, off, or the program umbra-jit"}
	}
	library, dependencies := o.LLVM, ""
	if library != "" {
		if library, err = filepath.Abs(library); err == nil {
			_, err = os.Stat(library)
		}
		dependencies = filepath.Dir(library)
		if err != nil {
			return nil, &config.Error{Where: c.Where("card.llvm"), Value: o.LLVM, Reason: err.Error() + "; want the file of libLLVM.so.19.1"}
		}
	}
	warn := func(format string, args ...any) { log.Warn(fmt.Sprintf(format, args...)) }
	return &jit.Config{Program: program, LLVM: library, Dependencies: dependencies, Log: warn}, nil
}

// missing says what machine code for guests' programs lacks here, and what helps; "" if nothing, or if nobody wants it.
func missing(c *config.Config, has *jit.Config) string {
	switch {
	case c.Card.Kind == config.Nvidia || c.Card.Compiler == config.CompilerOff:
		return ""
	case has == nil:
		return "there is no umbra-jit beside umbra or in $PATH; install it and libLLVM 19, or set card.compiler off"
	case has.LLVM == "" && !systemHas(jit.SystemLibrary):
		return "there is no libLLVM 19, " + jit.SystemLibrary + "; install it (Debian: libllvm19), or name its file in card.llvm"
	case !cpu.X86.HasAVX2 || !cpu.X86.HasFMA:
		return "this processor lacks AVX2 or FMA; set card.compiler off"
	}
	return ""
}

// systemHas reports whether the system's loader finds a library: its cache names it, or it is in a folder.
func systemHas(library string) bool {
	if cache, err := os.ReadFile(loaderCache); err == nil && bytes.Contains(cache, []byte(library+"\x00")) {
		return true
	}
	return slices.ContainsFunc(append(filepath.SplitList(os.Getenv("LD_LIBRARY_PATH")), jit.SystemFolders...), func(dir string) bool {
		_, err := os.Stat(filepath.Join(dir, library))
		return err == nil
	})
}

// FindCompiler returns the compiler beside this program or in $PATH, "" if there is none.
func FindCompiler() string {
	if self, err := os.Executable(); err == nil {
		if at, err := exec.LookPath(filepath.Join(filepath.Dir(self), compilerName)); err == nil {
			return at
		}
	}
	at, err := exec.LookPath(compilerName)
	if err != nil {
		return ""
	}
	return at
}

// programCounts are the counters of programs that run as machine code, nil without a compiler.
func programCounts(s *jit.Stats) *api.ProgramCounts {
	if s == nil {
		return nil
	}
	out := &api.ProgramCounts{CompileTime: time.Duration(s.CompileTime.Load()), Forms: s.Forms(), Reasons: s.Why()}
	load(out, s)
	return out
}
