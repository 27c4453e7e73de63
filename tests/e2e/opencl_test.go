package e2e

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/card/soft"
	"github.com/umbra-gpu/umbra/cmd/api"
	"github.com/umbra-gpu/umbra/cmd/lab"
	"github.com/umbra-gpu/umbra/cmd/lab/proto"
	"github.com/umbra-gpu/umbra/cmd/serve"
	"github.com/umbra-gpu/umbra/devmodel"
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
			b, s := virtual(t, testserver.SharedConfig{Card: soft.Config{VRAM: 512 << 20}},
				serve.GPUConfig{Share: aggregator.GuestConfig{VRAM: 256 << 20}}, lab.Config{Kernel: c.kernel, Mesa: c.mesa, Programs: all})
			b.modprobe()
			b.step("clinfo", func(b *fixture) {
				r, err := b.run("clinfo", "--list")
				require.NoError(b.t, err)
				require.Contains(b.t, r.Output, "NVC0")
			})
			for _, source := range right {
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
				require.Contains(b.t, *s.GPUs[0].Guest.Stats().FIFO.LastProgramFault.Load(), "illegal instruction at 0x")
			})
			b.step("wild pointer", func(b *fixture) {
				mark := b.mark()
				_, _ = b.run("stopped", "wild") // whatever Mesa makes of it
				log := texts(b.logAfter(mark))
				require.Contains(b.t, log, "engine 00 [PGRAPH] client 01 [GPC0/TEX] reason 00 [PT_NOT_PRESENT]")
				require.Contains(b.t, log, "killed!")
				require.Contains(b.t, *s.GPUs[0].Guest.Stats().FIFO.LastProgramFault.Load(), "address not mapped at 0x")
			})
			b.step("OpenGL compute", func(b *fixture) {
				r, err := b.run("compute")
				require.NoError(b.t, err)
				require.Contains(b.t, r.Output, "NVC0")
			})
			st := &s.GPUs[0].Guest.Stats().FIFO
			require.EqualValues(t, 1, st.EngineErrors.Load())
			require.EqualValues(t, 1, st.MMUFaults.Load())
			require.EqualValues(t, 2, st.ProgramFaults.Load())
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
		Device: devmodel.Config{TPCs: []int{1}}, // clpeak's work grows with their number
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
	reasons, err := shim.PiglitReasons()
	require.NoError(t, err)
	for _, test := range []string{
		"tests/cl/program/execute/local-memory.cl",
		"tests/cl/program/execute/sampler.cl",
		"generated_tests/cl/builtin/int/builtin-char-clamp-1.1.generated.cl",
		"generated_tests/cl/builtin/math/builtin-float-pow-1.0.generated.cl",
		"tests/spec/arb_compute_shader/execution/shared-atomicAdd-int.shader_test",
	} {
		b.attempt("piglit/"+test, func(b *fixture) {
			var r proto.RunResult
			err := b.try(proto.CmdRun, proto.RunArgs{Argv: shim.PiglitCommand(test), Env: shim.PiglitEnv, TimeoutMS: int((callPatience / 2).Milliseconds())}, &r)
			verdict := shim.PiglitVerdict(r.Output)
			require.NotEqual(b.t, "crash", verdict, "%v", err)
			require.Equal(b.t, reasons[test] == "", verdict == "pass", "%s: %s", verdict, r.Output)
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
	require.Zero(t, s.GPUs[0].Guest.Stats().FIFO.ProgramFaults.Load())
}

// fairConfig is of a server in a process of its own, as users have it.
const fairConfig = `
control: control.sock
card: {vram: 1GiB}
scheduler: {policy: credit, watchdog: {grace: 500ms}}
limits: {request: 1s}
gpus:
  - {name: a, socket: a.sock, vram: 256MiB, weight: 100}
  - {name: b, socket: b.sock, vram: 256MiB, weight: 200}
`

// serveFair starts the server, which ends with the test.
func serveFair(t *testing.T) *testserver.Process {
	t.Helper()
	dir, err := os.MkdirTemp("", "umbra-") // t.TempDir's paths are too long for sockets
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	bin, err := testserver.BuildUmbra(t.Context(), dir)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, testserver.ConfigFile), []byte(fairConfig), 0o600))
	s, err := testserver.StartProcess(t.Context(), bin, dir)
	require.NoError(t, err)
	t.Cleanup(func() {
		defer s.Kill()
		if t.Failed() {
			t.Logf("the server said: %s", s.Log())
		}
		require.NoError(t, s.Stop(context.WithoutCancel(t.Context())), s.Log())
	})
	return s
}

// TestOpenCLFair: guests that compute at the same time share the card by their weights, and have right
// results. A program that does not end costs its own channel.
func TestOpenCLFair(t *testing.T) {
	scale.ReleaseOnly(t)
	claim(t, 2)
	ctx := deadline(t)
	server := serveFair(t)
	_, all := sources(t)
	var guests []*fixture
	for _, name := range []string{"a", "b"} {
		vm := boot(t, lab.Config{CPUs: 1, Sockets: []string{filepath.Join(server.Dir, name+".sock")}, Mesa: "25", Programs: all})
		b := &fixture{PassThrough: &testserver.PassThrough{VM: vm}, t: t, ctx: ctx}
		b.modprobe()
		guests = append(guests, b)
	}
	// busy is the card's time for each guest, by the server's ledger.
	busy := func() (times []time.Duration) {
		s, err := server.Status(ctx)
		require.NoError(t, err)
		for _, g := range s.GPUs {
			times = append(times, api.Total(g.CardTime.Engines).Busy)
		}
		return times
	}

	// A launch is to take a third of a second. The time grows with the 1.5th power of the number.
	const first = 2000
	before := busy()
	for _, b := range guests { // the first start of a program takes long
		_, err := b.run("primes", strconv.Itoa(first))
		require.NoError(t, err)
	}
	grain := busy()[0] - before[0]
	below := strconv.Itoa(int(first * math.Pow(float64(time.Second/3)/float64(grain), 2.0/3)))
	t.Logf("primes below %d keep the card busy for %v; below %s from now on", first, grain, below)

	// Two processes in each guest: one has work waiting while the other reads its result.
	var running sync.WaitGroup
	compute := func(seconds int, list ...*fixture) {
		for _, b := range slices.Repeat(list, 2) {
			running.Go(func() {
				_, err := b.run("primes", below, strconv.Itoa(seconds))
				assert.NoError(t, err)
			})
		}
	}
	working := func(since []time.Duration, guests ...int) func() bool {
		return func() bool {
			now := busy()
			return !slices.ContainsFunc(guests, func(g int) bool { return now[g]-since[g] < 2*time.Second })
		}
	}
	const seconds = 30
	begun := busy()
	compute(seconds, guests...)
	require.Eventually(t, working(begun, 0, 1), time.Minute, 50*time.Millisecond)
	from := busy()
	time.Sleep(seconds / 2 * time.Second)
	to := busy()
	a, b := to[0]-from[0], to[1]-from[1]
	t.Logf("the card worked %v for a and %v for b", a, b)
	require.InDelta(t, 1.0/3, float64(a)/float64(a+b), 0.03)
	running.Wait()

	begun = busy()
	compute(10, guests[1])
	require.Eventually(t, working(begun, 1), time.Minute, 50*time.Millisecond)
	mark := guests[0].mark()
	_, _ = guests[0].run("stopped", "endless") // whatever Mesa makes of it
	require.Contains(t, texts(guests[0].logAfter(mark)), "killed!")
	running.Wait()
	_, err := guests[0].run("primes", below)
	require.NoError(t, err, "another program of the same guest")
	s, err := server.Status(ctx)
	require.NoError(t, err)
	require.EqualValues(t, 1, s.GPUs[0].Counts["runaways"])
	for _, count := range []string{"runaways", "mmu_faults", "card_timeouts"} {
		require.Zero(t, s.GPUs[1].Counts[count], count)
	}
}
