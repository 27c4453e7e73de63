package shim

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/scale"
)

func machine(t *testing.T, cfg Config) *Machine {
	m, err := NewMachine(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, m.Close()) })
	return m
}

// newTestHost makes a host that is closed when the test ends.
func newTestHost(t *testing.T, ctx context.Context, packages Packages, version string) *Host {
	dir, err := fetch.DefaultDir()
	require.NoError(t, err)
	host, err := NewHost(ctx, &fetch.Cache{Dir: dir, Progress: t.Output()}, packages, version)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, host.Close()) })
	return host
}

// TestRecordings: the card makes of each recorded submission what it made of it when the program
// found its results right. A card whose engines do nothing does not.
func TestRecordings(t *testing.T) {
	files, err := filepath.Glob("testdata/*.rec")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			data, err := os.ReadFile(name)
			require.NoError(t, err)
			r, err := ReadRecording(bytes.NewReader(data))
			require.NoError(t, err)
			require.NoError(t, Replay(machine(t, Config{}), r))
			require.ErrorContains(t, Replay(machine(t, Config{Idle: true}), r), "did not write")
		})
	}
}

// TestPrograms: programs of ours run with both versions of Debian's Mesa on the card. What they record
// replays.
func TestPrograms(t *testing.T) {
	scale.ReleaseOnly(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	files, err := filepath.Glob("programs/*.c")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, version := range []string{"25", "26"} {
		host := newTestHost(t, ctx, (*fetch.Cache).Mesa, version)
		for _, file := range files {
			name := strings.TrimSuffix(filepath.Base(file), ".c")
			t.Run(name+" with Mesa "+version, func(t *testing.T) {
				if name == "blur" && version == "26" {
					t.Skip("OpenCL of Mesa 26 refuses images on the card: clCreateImage returns -10 for all four formats that were tried")
				}
				runOurs(t, ctx, host, file, name, version == "25")
			})
		}
	}
}

// runOurs runs a program on our card and, with controls, also where it must pass and where it must not.
func runOurs(t *testing.T, ctx context.Context, host *Host, file, name string, controls bool) {
	binary, err := host.Compile(ctx, file)
	require.NoError(t, err)
	var output bytes.Buffer
	run := func(device string, cfg Config) (*Recording, error) {
		output.Reset()
		return host.Run(ctx, Program{
			Argv: []string{binary}, Device: device, Config: cfg, Record: true, Output: &output, Errors: &output,
		})
	}
	if controls {
		_, err = run("llvmpipe", Config{})
		require.NoError(t, err, "the program itself is wrong: %s", &output)
		_, err = run(OurCard, Config{Idle: true})
		require.Error(t, err, "the program does not notice a card that does nothing")
	}
	launches := 0
	r, err := run(OurCard, Config{Launched: func(*sm.Launch) { launches++ }})
	require.NoError(t, err, "%s", &output)
	require.Equal(t, name != "copies", launches > 0)
	require.NoError(t, Replay(machine(t, Config{}), r))
}

// TestBlame: Mesa's compiler is blamed for what it said that it cannot do, and for nothing else.
func TestBlame(t *testing.T) {
	failed := errors.New("signal: floating point exception")
	const card = "umbra shim: illegal instruction at 0x7f5b0, block [0 0 0], warp 0: word "
	for said, blamed := range map[string]bool{
		"ERROR: no viable spill candidates left\n":                                                                  true,
		"ERROR: nir_alu_instr only supported with 1 component!\n":                                                   true,
		"1\nERROR: unknown nir_op pack_32_2x16_split\nnvc0_program_translate:659 - shader translation failed: -2\n": true,
		card + "0x010cc00000219c00 is no instruction: no form has this opcode\n":                                    true,
		card + "0x0104c00000309c0f is no instruction: no form has this opcode\n":                                    false,
		"ERROR: unknown nir_op pack_32_2x16_split\numbra shim: address not mapped\n":                                false,
		"ERROR: 3 sums differ\n": false, "": false,
	} {
		require.Equal(t, blamed, errors.Is(blame(failed, []byte(said)), ErrMesa), said)
		require.ErrorIs(t, blame(failed, []byte(said)), failed)
		require.NoError(t, blame(nil, []byte(said)), "the program did without it")
	}
}
