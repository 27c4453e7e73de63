package serve

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/config"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

const compilerName = "umbra-jit"

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
	library, dependencies := o.LLVM, fetch.CachedLLVM()
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

// interpreted says why no program of a guest runs as machine code, and what helps. It is empty if nothing is known to prevent
// machine code, and if nobody wants it. Whether umbra-jit can serve is known from the first program that is worth it.
func interpreted(c *config.Config, s *jit.Stats) string {
	switch {
	case s != nil:
		return s.NoStart()
	case c.Card.Compiler == config.CompilerOff:
		return ""
	}
	return "there is no umbra-jit beside umbra or in $PATH; install it and libLLVM 19, or set card.compiler off"
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

// programCounts are the counters of a card's programs that run as machine code, nil without a compiler.
func programCounts(c *soft.Card) *api.ProgramCounts {
	s := c.Compiled()
	if s == nil {
		return nil
	}
	out := &api.ProgramCounts{Launches: c.Stats().Engine.Programs(), CompileTime: time.Duration(s.CompileTime.Load()), Forms: s.Forms(), Reasons: s.Why()}
	load(out, s)
	return out
}
