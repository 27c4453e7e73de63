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
	"github.com/umbra-gpu/umbra/tests/scale"
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

// TestProgramsCompiled: programs of ours find their results right when machine code made them, and wrong on a card that
// does nothing.
func TestProgramsCompiled(t *testing.T) {
	scale.ReleaseOnly(t)
	c := compiler(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	files, err := filepath.Glob("programs/*.c")
	require.NoError(t, err)
	host := newTestHost(t, ctx, (*fetch.Cache).Mesa, "25")
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			binary, err := host.Compile(ctx, file)
			require.NoError(t, err)
			var output bytes.Buffer
			p := Program{Argv: []string{binary}, Device: OurCard, Output: &output, Errors: &output}
			p.Config = Config{Compile: c, Compiled: func(s *jit.Stats) { t.Log(s.Native.Load(), s.Forms(), s.Why()) }}
			_, err = host.Run(ctx, p)
			require.NoError(t, err, "%s", &output)
			p.Config = Config{Compile: c, Idle: true}
			_, err = host.Run(ctx, p)
			require.Error(t, err)
		})
	}
}

// TestGLCompiled: textures and images give in the compiler's process what they give in the server, to the bit. A few
// instructions are the server's: those whose memory only it reaches.
func TestGLCompiled(t *testing.T) {
	scale.ReleaseOnly(t)
	c := compiler(t)
	eachGL(t, func(t *testing.T, run glRun) {
		var native, there, left uint64
		want := run(0, OurCard, Config{})
		require.Equal(t, want, run(0, OurCard, Config{Compile: c, Compiled: func(s *jit.Stats) {
			native, there, left = native+s.Native.Load(), there+s.Interpreted.Load(), left+s.Left.Load()
			t.Log(s.Native.Load(), s.Interpreted.Load(), s.Left.Load(), s.Forms(), s.Why())
		}}))
		require.NotZero(t, native)
		require.Greater(t, there, left)
		require.NotEqual(t, want, run(0, OurCard, Config{Compile: c, Idle: true}))
	})
}
