package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/shim"
)

// Values of -compile.
const (
	compileOff    = "off"
	compileOn     = "on"
	compileWait   = "wait"
	compileAlways = "always"

	compileHelp = "off: the card executes programs itself; on: umbra-jit runs those that are worth it; wait: launches wait for its compiler; always: and it runs all"
)

// useCompiler makes the card run programs as machine code, and says at the end of each card what came of it.
func useCompiler(ctx context.Context, cfg *shim.Config, mode string) (done func(), err error) {
	switch mode {
	case compileOff:
		return func() {}, nil
	case compileOn, compileWait, compileAlways:
	default:
		return nil, fmt.Errorf("-compile %s: want %s, %s, %s or %s", mode, compileOff, compileOn, compileWait, compileAlways)
	}
	dir, err := os.MkdirTemp("", "umbra-jit")
	if err != nil {
		return nil, err
	}
	done = func() { os.RemoveAll(dir) }
	cached, err := fetch.DefaultDir()
	if err == nil {
		cfg.Compile, err = shim.Compiler(ctx, &fetch.Cache{Dir: cached, Progress: os.Stderr}, dir)
	}
	if err != nil {
		done()
		return nil, err
	}
	cfg.Compile.Always, cfg.Compile.Wait = mode == compileAlways, mode != compileOn
	cfg.Compile.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, "umbra shim: "+format+"\n", args...) }
	cfg.Compiled = func(s *jit.Stats) {
		fmt.Fprintf(os.Stderr, "umbra shim: %d warp instructions as machine code, %d interpreted beside it, in %d steps; %d left; %d programs compiled in %v; %d launches refused; %d processes lost\n",
			s.Native.Load(), s.Interpreted.Load(), s.Runs.Load(), s.Left.Load(), s.Compiled.Load(), time.Duration(s.CompileTime.Load()).Round(time.Millisecond), s.Refused.Load(), s.Lost.Load())
		for _, m := range []map[string]uint64{s.Forms(), s.Why()} {
			for _, name := range slices.Sorted(maps.Keys(m)) {
				fmt.Fprintf(os.Stderr, "umbra shim: %8d %s\n", m[name], name)
			}
		}
	}
	return done, nil
}
