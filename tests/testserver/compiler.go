package testserver

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// EnvCompiler names an umbra-jit that runs all programs of all cards of tests, with the library that UMBRA_LLVM names:
// any suite then tests it, too.
const EnvCompiler = "UMBRA_TEST_JIT"

// Compiler returns that umbra-jit, nil if none is named.
func Compiler() *jit.Config {
	program := os.Getenv(EnvCompiler)
	if program == "" {
		return nil
	}
	library := os.Getenv(fetch.EnvLLVM)
	return &jit.Config{
		Program: program, LLVM: library, Dependencies: filepath.Dir(library), Always: true, Wait: true,
		Log: func(format string, args ...any) { slog.Warn(fmt.Sprintf(format, args...)) },
	}
}

func withCompiler(c soft.Config) soft.Config {
	if c.Compile == nil {
		c.Compile = Compiler()
	}
	return c
}
