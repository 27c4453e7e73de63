package engine

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/smtest"
	"github.com/umbra-gpu/umbra/tests/smtest/launches"
)

// programs end after some 10,000 instructions of a warp.
var programs = map[string]string{
	"fma": `
	mov b32 $r1 $tidx
	cvt rn f32 $r8 u32 $r1
	mov b32 $r9 0x3f7fff00
	mov b32 $r10 0x3f800001
	mov b32 $r3 0x3e8
again:
	fma rn f32 $r8 $r9 $r10 $r8
	fma rn f32 $r8 $r9 $r10 $r8
	fma rn f32 $r8 $r9 $r10 $r8
	fma rn f32 $r8 $r9 $r10 $r8
	fma rn f32 $r8 $r9 $r10 $r8
	fma rn f32 $r8 $r9 $r10 $r8
	fma rn f32 $r8 $r9 $r10 $r8
	sub b32 $r3 $r3 0x1
	set $p0 0x1 ne u32 $r3 0x0
	$p0 bra again
	mov b32 $r0 $r8` + smtest.Store,
	"integers": `
	mov b32 $r0 $tidx
	mov b32 $r3 0x3e8
again:
	xor b32 $r0 $r0 0x2545
	shl b32 $r4 $r0 clamp 0x7
	xor b32 $r0 $r0 $r4
	mul $r4 u32 $r0 u32 $r0
	add b32 $r0 $r0 $r4
	shr u32 $r4 $r0 clamp 0x9
	xor b32 $r0 $r0 $r4
	sub b32 $r3 $r3 0x1
	set $p0 0x1 ne u32 $r3 0x0
	$p0 bra again` + smtest.Store,
	"memory": `
	mov b32 $r1 $tidx
	ld b64 $r4d c0[0x0]
	add b32 $r4 $c (shl $r1 0x2) $r4
	add b32 $r5 $r5 0x0 $c
	mov b32 $r3 0x3e8
	cvt rn f32 $r0 u32 $r1
again:
	ld b32 $r8 ca g[$r4d]
	fma rn f32 $r8 $r8 $r8 $r0
	st b32 wb g[$r4d+0x400] $r8
	ld b32 $r9 ca g[$r4d+0x80]
	add rn f32 $r9 $r9 $r8
	st b32 wb g[$r4d+0x480] $r9
	sub b32 $r3 $r3 0x1
	set $p0 0x1 ne u32 $r3 0x0
	$p0 bra again` + smtest.Store,
	"divergent": `
	mov b32 $r1 $tidx
	mov b32 $r0 $r1
	add b32 $r3 $r1 0x3e8
	prebrk done
again:
	set $p0 0x1 eq u32 $r3 0x0
	$p0 brk
	xor b32 $r0 $r0 $r3
	shl b32 $r4 $r0 clamp 0x3
	add b32 $r0 $r0 $r4
	sub b32 $r3 $r3 0x1
	bra again
done:
` + smtest.Store,
}

// BenchmarkProgram measures a warp instruction, in ns, with all lanes.
func BenchmarkProgram(b *testing.B) {
	c := jittest.Compiler(b)
	for name, text := range programs {
		w := newTwins(b, c, llvm.Full, assemble(b, text), [3]uint32{32, 1, 1}, nil)
		b.Run(name+"/compiled", func(b *testing.B) {
			for w.runner.Compiled = 0; w.runner.Compiled < uint64(b.N); {
				w.work.Next, w.work.Count = 0, 1
				_, why := w.runner.Run(&w.work, forever())
				require.Equal(b, compile.Exhausted, why)
			}
		})
		b.Run(name+"/simd", func(b *testing.B) {
			var x simd.Executor
			x.Start(w.slow.Launch)
			for done := uint64(0); done < uint64(b.N); done += w.slow.Clock {
				w.slow.Reset([3]uint32{0, 0, 0})
				x.Begin()
				_, fault := x.Step(w.slow, 1<<40)
				require.Nil(b, fault)
			}
		})
	}
}

// BenchmarkMesa measures launches that tests/shim/cmd/launches stored, in the folder that the environment
// names: ns for a warp instruction, by compiled code and by package simd.
func BenchmarkMesa(b *testing.B) {
	dir := os.Getenv("UMBRA_LAUNCHES")
	files, err := filepath.Glob(filepath.Join(dir, "*.launches"))
	require.NoError(b, err)
	if dir == "" || len(files) == 0 {
		b.Skip("UMBRA_LAUNCHES names no folder of launches")
	}
	c := jittest.Compiler(b)
	sharedParts(b, c)
	for _, file := range files {
		b.Run(strings.TrimSuffix(filepath.Base(file), ".launches"), func(b *testing.B) {
			runtime.LockOSThread() // for threadTime
			list, err := launches.Read(file)
			require.NoError(b, err)
			known := make(codes)
			var ran, left uint64
			var compiled, interpreted time.Duration
			for b.Loop() {
				for _, l := range list {
					fast := placed(b, l)
					w := &twins{launch: l.On(fast), pages: table}
					w.code = known.of(b, c, w.launch, llvm.Full)
					w.start(b)
					w.work.Count = uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2])
					start := threadTime(b)
					for {
						_, why := w.runner.Run(&w.work, forever())
						if why == compile.Exhausted {
							break
						}
						require.Equal(b, compile.Left, why)
						require.Nil(b, w.runner.Interpret())
					}
					compiled += threadTime(b) - start
					ran, left = ran+w.runner.Compiled, left+w.runner.Interpreted
					drop(b, fast)
				}
			}
			if os.Getenv("UMBRA_SIMD") != "" {
				interpreted = time.Duration(float64(simdTime(b, list)) * float64(b.N))
				b.ReportMetric(float64(interpreted)/float64(ran+left), "ns/simd")
			}
			b.ReportMetric(float64(compiled)/float64(ran+left), "ns/instr")
			b.ReportMetric(float64(left)/float64(ran+left), "interpreted")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// simdTime is how long package simd takes for launches.
func simdTime(b *testing.B, list []*launches.Launch) (took time.Duration) {
	for _, l := range list {
		launch := l.On(l.Copy())
		var x simd.Executor
		block := interp.NewBlock(launch, [3]uint32{})
		start := threadTime(b)
		x.Start(launch)
		g := launch.Grid
		for n := range g[0] * g[1] * g[2] {
			block.Reset([3]uint32{n % g[0], n / g[0] % g[1], n / (g[0] * g[1])})
			_, fault := x.Step(block, 1<<40)
			require.Nil(b, fault)
		}
		took += threadTime(b) - start
	}
	return took
}

// threadTime is what this thread has used of its processor: others use it, too, and the collector.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	require.NoError(b, unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t))
	return time.Duration(t.Nano())
}

// BenchmarkCompile measures what compiling programs of a length takes: loops of eight instructions, in ms.
func BenchmarkCompile(b *testing.B) {
	c := jittest.Compiler(b)
	operations := []string{
		"add b32 $r%d $r%d $r%d", "xor b32 $r%d $r%d $r%d", "mul $r%d u32 $r%d u32 $r%d", "add rn f32 $r%d $r%d $r%d", "mul rn f32 $r%d $r%d $r%d",
		"shl b32 $r%d $r%d clamp $r%d", "max s32 $r%d $r%d $r%d", "min f32 $r%d $r%d $r%d",
	}
	for _, length := range []int{50, 300, 1000} {
		b.Run(strconv.Itoa(length), func(b *testing.B) {
			r := rand.New(rand.NewPCG(1, uint64(length)))
			var took []float64
			for b.Loop() {
				text, n := "mov b32 $r1 $tidx\n", 1
				for label := 0; n < length-7; label++ {
					text += fmt.Sprintf("mov b32 $r30 0x8\nagain%d:\n", label)
					for range 8 {
						text += fmt.Sprintf(operations[r.IntN(len(operations))]+"\n", r.IntN(20), r.IntN(20), r.IntN(20))
					}
					text += fmt.Sprintf("sub b32 $r30 $r30 0x1\nset $p0 0x1 ne u32 $r30 0x0\n$p0 bra again%d\n", label)
					n += 12
				}
				m := smtest.NewMemory(assemble(b, text+"exit"))
				l := newLaunch(m, [3]uint32{64, 1, 1})
				sharedParts(b, c)
				start := time.Now()
				code, err := New(c, support, l, fermi.Options(l), llvm.Full)
				took = append(took, float64(time.Since(start).Microseconds())/1e3)
				require.NoError(b, err)
				require.NoError(b, code.Close())
			}
			slices.Sort(took)
			b.ReportMetric(took[len(took)/2], "ms(p50)")
			b.ReportMetric(took[len(took)*99/100], "ms(p99)")
			b.ReportMetric(0, "ns/op")
		})
	}
}
