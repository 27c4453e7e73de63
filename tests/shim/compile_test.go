package shim

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
)

// compiler returns a compiler that runs all programs, or skips the test if there is no library for it.
func compiler(t *testing.T) *jit.Config {
	dir, err := fetch.DefaultDir()
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cache := &fetch.Cache{Dir: dir, Progress: t.Output()}
	if _, err := cache.LLVM(ctx); err != nil {
		t.Skip("no libLLVM 19:", err)
	}
	c, err := Compiler(ctx, cache, t.TempDir())
	require.NoError(t, err)
	c.Always, c.Wait = true, true
	c.Log = func(format string, args ...any) { t.Errorf(format, args...) }
	return c
}

// TestRecordingsCompiled: machine code makes of each recorded submission what it made of it when the program found its
// results right.
func TestRecordingsCompiled(t *testing.T) {
	c := compiler(t)
	files, err := filepath.Glob("testdata/*.rec")
	require.NoError(t, err)
	var native uint64
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			r, err := ReadRecording(bytes.NewReader(data))
			require.NoError(t, err)
			count := func(s *jit.Stats) {
				native += s.Native.Load()
				t.Log(s.Native.Load(), "warp instructions as machine code;", s.Forms(), s.Why())
			}
			m, err := NewMachine(Config{Compile: c, Compiled: count})
			require.NoError(t, err)
			require.NoError(t, Replay(m, r))
			require.NoError(t, m.Close())
			idle, err := NewMachine(Config{Compile: c, Idle: true})
			require.NoError(t, err)
			require.ErrorContains(t, Replay(idle, r), "did not write")
			require.NoError(t, idle.Close())
		})
	}
	require.NotZero(t, native)
}
