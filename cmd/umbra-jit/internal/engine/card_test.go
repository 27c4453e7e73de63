package engine

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/simd"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/smtest/launches"
)

// envCard names a folder of launches. Without a GPU, TestCard only adds what libLLVM makes of them, so that the folder
// and the test's binary are all that a machine with a GPU needs.
const envCard = "UMBRA_CARD_LAUNCHES"

// kept are object files and PTX in a folder, by the IR that they are made of. It implements Compiler.
type kept struct {
	dir      string
	cpu, ptx *llvm.Compiler // nil: nothing is made that is not in the folder
}

func (k *kept) get(ir, name string, c *llvm.Compiler, compile func(*llvm.Compiler) ([]byte, error)) ([]byte, error) {
	file := filepath.Join(k.dir, fmt.Sprintf("%x.%s", sha256.Sum256([]byte(ir)), name))
	data, err := os.ReadFile(file)
	if err == nil || c == nil {
		return data, err
	}
	if data, err = compile(c); err != nil {
		return nil, err
	}
	return data, os.WriteFile(file, data, 0o644)
}

// Compile implements Compiler.
func (k *kept) Compile(ir, passes string) ([]byte, error) {
	return k.get(ir, "o", k.cpu, func(c *llvm.Compiler) ([]byte, error) { return c.Compile(ir, passes) })
}

func (k *kept) assemble(ir string) ([]byte, error) {
	return k.get(ir, "ptx", k.ptx, func(c *llvm.Compiler) ([]byte, error) { return c.Assemble(ir, llvm.Full) })
}

// mostLaunches is how many of a program count.
const mostLaunches = 20

// Kernels on a real GPU leave in memory what the executor leaves, in each word; one that does nothing does not.
func TestCard(t *testing.T) {
	dir := os.Getenv(envCard)
	files, err := filepath.Glob(filepath.Join(dir, "*.launches"))
	require.NoError(t, err)
	if dir == "" || len(files) == 0 {
		t.Skip(envCard, "names no folder of launches")
	}
	k := &kept{dir: dir}
	gpu := openCUDA(t)
	if gpu == nil {
		k.cpu, k.ptx = jittest.Compiler(t), jittest.PTXCompiler(t)
	} else {
		fmt.Printf("%s, %s\n", gpu.device, gpu.driver)
	}
	sharedParts(t, k)
	fmt.Printf("%-11s %5s %9s %10s %10s %10s %10s %7s %6s %8s\n", "program", "runs", "threads", "executor", "compiled", "GPU", "with call", "load", "regs", "GPU/comp")
	sum, n := 0.0, 0
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".launches")
		t.Run(name, func(t *testing.T) {
			c := cardRun{t: t, kept: k, kernels: make(map[string]*gpuKernel)}
			if gpu != nil {
				c.gpu = gpu.of(t)
			}
			list, err := launches.Read(file)
			require.NoError(t, err)
			for i, l := range list[:min(len(list), mostLaunches)] {
				if err := c.run(l); errors.Is(err, errNoKernel) {
					fmt.Printf("%-11s launch %d: %v\n", name, i, err)
					c.left++
				} else {
					require.NoError(t, err, "launch %d", i)
				}
			}
			if c.runs == 0 {
				return
			}
			ratio := float64(c.on) / float64(c.compiled)
			fmt.Printf("%-11s %5d %9d %10v %10v %10v %10v %7v %6d %8.4f\n", name, c.runs, c.threads, c.executor.Round(time.Microsecond), c.compiled.Round(time.Microsecond),
				c.on.Round(100*time.Nanosecond), c.all.Round(100*time.Nanosecond), c.load.Round(100*time.Microsecond), c.registers, ratio)
			if gpu != nil {
				sum += math.Log(ratio)
				n++
			}
		})
	}
	if n > 0 {
		fmt.Printf("geometric mean of GPU/compiled over %d programs: %.4f\n", n, math.Exp(sum/float64(n)))
	}
}

var errNoKernel = errors.New("no kernel")

// cardRun are the launches of a program, and what they took.
type cardRun struct {
	t       *testing.T
	kept    *kept
	gpu     *cuda
	kernels map[string]*gpuKernel // by IR

	runs, left                        int
	threads                           uint64
	executor, compiled, on, all, load time.Duration
	registers                         int32
}

// run runs a launch by each.
func (c *cardRun) run(l *launches.Launch) error {
	launch := l.On(l.Copy())
	k, err := kernelOf(launch)
	if err != nil {
		return errors.Join(errNoKernel, err)
	}
	ptx, err := c.kept.assemble(k.IR)
	if err != nil {
		return err
	}
	nothing, err := c.kept.assemble(noKernel)
	if err != nil {
		return err
	}
	want := l.Copy()
	executor := c.execute(l.On(want))
	compiled, err := c.compile(l, want)
	if err != nil {
		return err
	}
	c.executor, c.compiled = c.executor+executor, c.compiled+compiled
	c.runs++
	c.threads += uint64(l.Grid[0]) * uint64(l.Grid[1]) * uint64(l.Grid[2]) * uint64(l.Block[0]) * uint64(l.Block[1]) * uint64(l.Block[2])
	if c.gpu != nil {
		return c.onGPU(l, launch, k, ptx, nothing, want)
	}
	return nil
}

// execute runs the blocks in order, by package simd.
func (c *cardRun) execute(l *interp.Launch) time.Duration {
	var x simd.Executor
	block := interp.NewBlock(l, [3]uint32{})
	start := time.Now()
	x.Start(l)
	g := l.Grid
	for n := range g[0] * g[1] * g[2] {
		block.Reset([3]uint32{n % g[0], n / g[0] % g[1], n / (g[0] * g[1])})
		_, fault := x.Step(block, math.MaxInt)
		require.Nil(c.t, fault)
	}
	return time.Since(start)
}

// compile runs the machine code of this processor, and returns the shortest of some times.
func (c *cardRun) compile(l *launches.Launch, want launches.Pages) (best time.Duration, err error) {
	const times = 3
	best = math.MaxInt64
	fast := placed(c.t, l)
	defer drop(c.t, fast)
	w := &twins{launch: l.On(fast), pages: table}
	if w.code, err = New(c.kept, support, w.launch, fermi.Options(w.launch), llvm.Full); err != nil {
		return 0, err
	}
	defer w.code.Close()
	for range times {
		for addr, b := range fast {
			copy(b, l.Pages[addr])
		}
		w.start(c.t)
		w.work.Next, w.work.Count = 0, uint64(l.Grid[0])*uint64(l.Grid[1])*uint64(l.Grid[2])
		start := time.Now()
		for {
			_, why := w.runner.Run(&w.work, forever())
			if why == compile.Exhausted {
				break
			}
			require.Equal(c.t, compile.Left, why)
			require.Nil(c.t, w.runner.Interpret())
		}
		best = min(best, time.Since(start))
		require.Empty(c.t, differing(fast, want), "machine code of this processor")
	}
	return best, nil
}

// differing says where pages differ, by words.
func differing(got, want launches.Pages) string {
	words, first := 0, uint64(math.MaxUint64)
	for addr, b := range want {
		for i := 0; i < len(b); i += 4 {
			if !bytes.Equal(got[addr][i:i+4], b[i:i+4]) {
				words++
				first = min(first, addr+uint64(i))
			}
		}
	}
	if words == 0 {
		return ""
	}
	at := first % pageSize
	return fmt.Sprintf("%d words, the first at %#x: %x, want %x", words, first, got[first-at][at:at+4], want[first-at][at:at+4])
}

// noKernel has the parameters of a kernel and does nothing.
const noKernel = `define ptx_kernel void @kernel(ptr addrspace(1) %memory, i64 %low, i64 %size, ptr addrspace(1) %fault, i32 %shared, ptr byval([1 x i32]) align 4 %constants) {
ret void
}
`

// onGPU runs a launch on the GPU, and the kernel that does nothing.
func (c *cardRun) onGPU(l *launches.Launch, launch *interp.Launch, k *compile.Kernel, ptx, nothing []byte, want launches.Pages) error {
	const times = 11
	kernel := c.kernels[k.IR]
	if kernel == nil {
		kernel = c.gpu.load(ptx, compile.KernelName)
		c.kernels[k.IR] = kernel
		c.t.Cleanup(kernel.unload)
		c.load = max(c.load, kernel.took)
		c.registers = max(c.registers, kernel.registers)
	}
	m, err := c.gpu.memoryFor(l)
	if err != nil {
		return err
	}
	defer m.free()
	args, offsets, err := m.arguments(k, launch)
	if err != nil {
		return err
	}
	control := c.gpu.load(nothing, compile.KernelName)
	defer control.unload()
	m.write(l.Pages)
	control.run(l.Grid, l.Block, l.Shared, args, offsets)
	if differing(l.Pages, want) != "" { // the launch changes memory
		require.NotEmpty(c.t, differing(m.read(l.Pages), want), "a kernel that does nothing")
	}
	var on, all []time.Duration
	for range times {
		m.write(l.Pages)
		a, b := kernel.run(l.Grid, l.Block, l.Shared, args, offsets)
		on, all = append(on, a), append(all, b)
		if fault := m.fault(); fault != 0 {
			return fmt.Errorf("the kernel stopped at %#x with code %d", uint32(fault), fault>>32)
		}
		if d := differing(m.read(l.Pages), want); d != "" {
			return errors.New("GPU and executor differ: " + d)
		}
	}
	if !m.othersZero(l.Pages) {
		return errors.New("the kernel wrote outside of the pages of the launch")
	}
	slices.Sort(on)
	slices.Sort(all)
	c.on, c.all = c.on+on[times/2], c.all+all[times/2]
	return nil
}
