package e2e

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/shim"
	"github.com/umbra-gpu/umbra/tests/testserver"
)

const classCompute = 0x90c0

// sources finds programs: those of the shim, which check their results, and those of this test,
// which do what they must not.
func sources(t *testing.T) (right, all []string) {
	t.Helper()
	right, err := filepath.Glob("../shim/programs/*.c")
	require.NoError(t, err)
	bad, err := filepath.Glob("programs/*.c")
	require.NoError(t, err)
	require.NotEmpty(t, right)
	require.NotEmpty(t, bad)
	return right, append(right[:len(right):len(right)], bad...)
}

func programName(source string) string { return strings.TrimSuffix(filepath.Base(source), ".c") }

// run runs a program in the guest.
func (b *fixture) run(argv ...string) (r proto.RunResult, err error) {
	b.t.Helper()
	err = b.try(proto.CmdRun, proto.RunArgs{Argv: argv, TimeoutMS: int((callPatience / 2).Milliseconds())}, &r)
	return r, err
}

// TestOpenCL: in stock guests, Debian's Mesa finds the virtual GPU, and our programs compute on it
// what the CPU does. What a bad program did is in the guest's log, and no other is hurt.
func TestOpenCL(t *testing.T) {
	scale.ReleaseOnly(t)
	right, all := sources(t)
	for _, c := range []struct{ kernel, mesa string }{{"6.12", "25"}, {"7.2", "26"}} {
		t.Run("Linux "+c.kernel+", Mesa "+c.mesa, func(t *testing.T) {
			cfg := sched.Default()
			cfg.Watchdog.Limit, cfg.Watchdog.Grace = 30*time.Second, 500*time.Millisecond
			b, s := virtual(t, testserver.SharedConfig{Card: soft.Config{VRAM: 512 << 20}, Limits: aggregator.Options{Scheduler: &cfg}},
				serve.GPUConfig{Share: aggregator.GuestConfig{VRAM: 256 << 20}}, lab.Config{Kernel: c.kernel, Mesa: c.mesa, Programs: all})
			b.modprobe()
			b.step("clinfo", func(b *fixture) {
				r, err := b.run("clinfo", "--list")
				require.NoError(b.t, err)
				require.Contains(b.t, r.Output, "NVC0")
			})
			for _, source := range right {
				if programName(source) == "blur" && c.mesa == "26" {
					continue // OpenCL of Mesa 26 refuses images on the card, see docs/ci.md
				}
				b.attempt(programName(source), func(b *fixture) {
					var r proto.RunResult
					w := b.during(func() {
						var err error
						r, err = b.run(programName(source))
						require.NoError(b.t, err)
					})
					b.t.Logf("%s, in %v of the guest's time", strings.TrimSpace(r.Output), time.Duration(r.NS))
					if programName(source) != "copies" {
						require.NotZero(b.t, w.launches[classCompute])
					}
				})
			}
			b.step("illegal instruction", func(b *fixture) {
				mark := b.mark()
				_, err := b.run("illegal")
				require.NoError(b.t, err, "nouveau lets the channel go on")
				log := texts(b.logAfter(mark))
				require.Contains(b.t, log, "MP trap: global 00000000 [] warp 0009 [ILLEGAL_INSTR_ENCODING]")
				require.NotContains(b.t, log, "killed")
				require.Contains(b.t, *s.GPUs[0].Guest.Stats().Channels.LastProgramFault.Load(), "illegal instruction at 0x")
			})
			b.step("wild pointer", func(b *fixture) {
				mark := b.mark()
				_, _ = b.run("stopped", "wild") // whatever Mesa makes of it
				log := texts(b.logAfter(mark))
				require.Contains(b.t, log, "engine 00 [PGRAPH] client 01 [GPC0/TEX] reason 00 [PT_NOT_PRESENT]")
				require.Contains(b.t, log, "killed!")
				require.Contains(b.t, *s.GPUs[0].Guest.Stats().Channels.LastProgramFault.Load(), "address not mapped at 0x")
			})
			b.step("OpenGL compute", func(b *fixture) {
				r, err := b.run("compute")
				require.NoError(b.t, err)
				require.Contains(b.t, r.Output, "NVC0")
			})
			st := &s.GPUs[0].Guest.Stats().Channels
			require.EqualValues(t, 1, st.EngineErrors.Load())
			require.EqualValues(t, 1, st.MMUFaults.Load())
			require.EqualValues(t, 2, st.ProgramFaults.Load())
			b.step("endless program", func(b *fixture) {
				mark := b.mark()
				_, _ = b.run("stopped", "endless") // whatever Mesa makes of it
				require.Contains(b.t, texts(b.logAfter(mark)), "killed!")
				require.EqualValues(b.t, 1, s.GPUs[0].Guest.Stats().Runaways.Load())
				_, err := b.run("saxpy")
				require.NoError(b.t, err, "another program")
			})
		})
	}
}

// TestOpenCLTools: with tools, a guest can measure, compile a program, and run tests of piglit. They give
// what they give without a machine.
func TestOpenCLTools(t *testing.T) {
	scale.ReleaseOnly(t)
	right, _ := sources(t)
	b, s := virtual(t, testserver.SharedConfig{Card: soft.Config{VRAM: 512 << 20}}, serve.GPUConfig{
		Share:  aggregator.GuestConfig{VRAM: 256 << 20},
		Device: serve.GF100{TPCs: []int{1}}, // clpeak's work grows with their number
	}, lab.Config{Mesa: "25", Tools: true, Programs: right})
	b.modprobe()
	b.step("compiler", func(b *fixture) {
		for _, name := range []string{"saxpy", "reduce"} {
			w := b.during(func() {
				r, err := b.run("tcc", "-run", "-lOpenCL", "-lm", "/programs/"+name+".c")
				require.NoError(b.t, err)
				require.Contains(b.t, r.Output, name+": ") // it fails if it computes what is wrong
			})
			require.NotZero(b.t, w.launches[classCompute])
		}
	})
	for _, test := range []string{
		"tests/cl/program/execute/local-memory.cl",
		"tests/spec/arb_compute_shader/execution/shared-atomicAdd-int.shader_test",
	} {
		b.attempt("piglit/"+test, func(b *fixture) {
			var r proto.RunResult
			b.call(proto.CmdRun, proto.RunArgs{Argv: shim.PiglitCommand(test), Env: shim.PiglitEnv, TimeoutMS: int((callPatience / 2).Milliseconds())}, &r)
			require.Equal(b.t, "pass", shim.PiglitVerdict(r.Output), r.Output)
		})
	}
	for _, c := range [][]string{{"--compute-sp", "float4"}, {"--compute-integer", "int"}} {
		b.attempt("clpeak "+strings.Join(c, " "), func(b *fixture) {
			var r proto.RunResult
			b.call(proto.CmdRun, proto.RunArgs{
				Argv: []string{"clpeak", c[0], "-tn", c[1]},
				Env:  []string{"RUSTICL_DEVICE_TYPE=cpu"}, // it gives processors less to do
			}, &r)
			require.Regexp(b.t, regexp.MustCompile(c[1]+" +: [0-9.]*[1-9]"), r.Output)
			b.t.Logf("%v\n%s", time.Duration(r.NS), r.Output)
		})
	}
	require.Zero(t, s.GPUs[0].Guest.Stats().Channels.ProgramFaults.Load())
}
