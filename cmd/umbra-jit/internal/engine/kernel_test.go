package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/ebitengine/purego"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/object"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/smtest"
	"github.com/umbra-gpu/umbra/tests/smtest/launches"
)

// Kernels run here as on a GPU, but slowly: each thread is one of the operating system, if there are barriers.

// special are the registers of a thread that a kernel reads, in the order of threadArguments.
var special = regexp.MustCompile(`call i32 @llvm\.nvvm\.read\.ptx\.sreg\.(n?ctaid|tid)\.([xyz])\(\)`)

// onHost turns the IR of a kernel to that of a function thread(arguments) of this processor.
func onHost(ir string) string {
	ir = regexp.MustCompile(`(?m)^(declare .*nvvm.*|!.*|@sharedMemory = .*)\n`).ReplaceAllString(ir, "")
	ir = special.ReplaceAllString(ir, "add i32 %$1.$2, 0")
	ir = regexp.MustCompile(`ptr byval\(\[\d+ x i32\]\) align 4 %constants`).ReplaceAllString(ir, "ptr %constants, ptr %sharedMemory, ptr %bar, "+
		"i32 %tid.x, i32 %tid.y, i32 %tid.z, i32 %ctaid.x, i32 %ctaid.y, i32 %ctaid.z, i32 %nctaid.x, i32 %nctaid.y, i32 %nctaid.z")
	ir = regexp.MustCompile(`call void @llvm\.nvvm\.barrier\.n\(i32 \d+\)`).ReplaceAllString(ir, "call void @barrier(ptr %bar)")
	ir = regexp.MustCompile(`call void @llvm\.nvvm\.membar\.(gl|cta)\(\)`).ReplaceAllString(ir, "fence seq_cst")
	ir = strings.NewReplacer("ptx_kernel ", "internal ", " addrspace(1)", "", " addrspace(3)", "", "@sharedMemory", "%sharedMemory").Replace(ir)
	types := strings.Fields("ptr i64 i64 ptr i32 ptr ptr ptr" + strings.Repeat(" i32", 9))
	var args []string
	var s strings.Builder
	s.WriteString(ir + barrierText + "define void @thread(ptr %a) {\n")
	for i, typ := range types {
		fmt.Fprintf(&s, "%%p%d = getelementptr i64, ptr %%a, i64 %d\n%%a%d = load %s, ptr %%p%d\n", i, i, i, typ, i)
		args = append(args, fmt.Sprintf("%s %%a%d", typ, i))
	}
	fmt.Fprintf(&s, "call void @%s(%s)\ncall void @ended(ptr %%a7)\nret void\n}\n", compile.KernelName, strings.Join(args, ", "))
	return s.String()
}

// barrierText makes threads wait for each other, by the C library. One that has ended goes on to wait, so that the others
// do not need it, until all have: between the two waits none can end. The words are a pthread_barrier_t, how many have
// ended, how many there are, and the address of pthread_barrier_wait.
const barrierText = `
define internal void @barrier(ptr %b) noinline {
  %waitAt = getelementptr i64, ptr %b, i64 5
  %wait = load ptr, ptr %waitAt
  call i32 %wait(ptr %b)
  call i32 %wait(ptr %b)
  ret void
}
define internal void @ended(ptr %b) noinline {
  %endedAt = getelementptr i32, ptr %b, i64 8
  %threadsAt = getelementptr i32, ptr %b, i64 9
  %waitAt = getelementptr i64, ptr %b, i64 5
  %threads = load i32, ptr %threadsAt
  %wait = load ptr, ptr %waitAt
  %alone = icmp eq i32 %threads, 0
  br i1 %alone, label %done, label %count
count:
  %old = atomicrmw add ptr %endedAt, i32 1 seq_cst
  br label %next
next:
  call i32 %wait(ptr %b)
  %now = load atomic i32, ptr %endedAt seq_cst, align 4
  call i32 %wait(ptr %b)
  %all = icmp eq i32 %now, %threads
  br i1 %all, label %done, label %next
done:
  ret void
}
`

// hostKernel is a kernel as code of this processor.
type hostKernel struct {
	*compile.Kernel
	thread uintptr
	waits  bool // it has barriers
}

func newHostKernel(t testing.TB, c *llvm.Compiler, k *compile.Kernel) *hostKernel {
	data, err := c.Compile(onHost(k.IR), llvm.Quick)
	require.NoError(t, err, onHost(k.IR))
	code, err := object.Load(data)
	require.NoError(t, err)
	t.Cleanup(func() { code.Unload() })
	h := &hostKernel{Kernel: k, waits: strings.Contains(k.IR, "call void @llvm.nvvm.barrier")}
	h.thread, err = code.Symbol("thread")
	require.NoError(t, err)
	return h
}

// run runs all blocks on a memory that begins at an address.
func (h *hostKernel) run(t testing.TB, l *interp.Launch, memory smtest.Memory, low uint64) uint64 {
	constants := make([]byte, 0, 4*len(h.Constants)+8)
	for _, c := range h.Constants {
		word := make([]byte, 4)
		require.NoError(t, l.Memory.Load(l.Banks[c.Bank].Addr+uint64(c.Offset), word))
		constants = append(constants, word...)
	}
	constants = append(constants, 0)
	function := func(name string) uintptr {
		at, err := purego.Dlsym(purego.RTLD_DEFAULT, name)
		require.NoError(t, err)
		return at
	}
	create, join := function("pthread_create"), function("pthread_join")
	initialize, wait := function("pthread_barrier_init"), function("pthread_barrier_wait")
	page := pinned(t, make(smtest.Memory, pageSize)) // small slices could be on a stack, which moves
	fault, bar := page[:8], page[64:64+48]
	size := l.Block[0] * l.Block[1] * l.Block[2]
	all, threads := make([]byte, 17*8*size), make([]byte, 8*size)
	shared := make([]byte, l.Shared+16)
	shared = shared[-sliceAddress(shared)&15:]
	for n := range l.Grid[0] * l.Grid[1] * l.Grid[2] {
		clear(shared)
		clear(bar)
		if h.waits {
			code, _, _ := purego.SyscallN(initialize, uintptr(sliceAddress(bar)), 0, uintptr(size))
			require.Zero(t, code)
			binary.LittleEndian.PutUint32(bar[36:], size)
		}
		binary.LittleEndian.PutUint64(bar[40:], uint64(wait))
		for i := range size {
			args := all[17*8*i:][: 0 : 17*8]
			for _, v := range []uint64{sliceAddress(memory), low, uint64(len(memory)), sliceAddress(fault), uint64(l.Shared), sliceAddress(constants), sliceAddress(shared), sliceAddress(bar)} {
				args = binary.LittleEndian.AppendUint64(args, v)
			}
			for _, v := range []uint32{
				i % l.Block[0], i / l.Block[0] % l.Block[1], i / (l.Block[0] * l.Block[1]),
				n % l.Grid[0], n / l.Grid[0] % l.Grid[1], n / (l.Grid[0] * l.Grid[1]), l.Grid[0], l.Grid[1], l.Grid[2],
			} {
				args = binary.LittleEndian.AppendUint64(args, uint64(v))
			}
			if !h.waits {
				purego.SyscallN(h.thread, uintptr(sliceAddress(args)))
				continue
			}
			code, _, _ := purego.SyscallN(create, uintptr(sliceAddress(threads[8*i:])), 0, h.thread, uintptr(sliceAddress(args)))
			require.Zero(t, code)
		}
		for i := range size {
			if h.waits {
				purego.SyscallN(join, uintptr(binary.LittleEndian.Uint64(threads[8*i:])), 0)
			}
		}
	}
	for _, b := range [][]byte{constants, all, threads, shared, memory} { // the threads alone knew them
		runtime.KeepAlive(b)
	}
	return binary.LittleEndian.Uint64(fault)
}

// Kernels of Mesa's programs, thread by thread, leave in memory what package interp leaves.
func TestKernels(t *testing.T) {
	c := jittest.Compiler(t)
	files, err := filepath.Glob("testdata/*.launches")
	require.NoError(t, err)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".launches"), func(t *testing.T) {
			list, err := launches.Read(file)
			require.NoError(t, err)
			known, runs := make(map[string]*hostKernel), make(map[string]int)
			for n, l := range list {
				k, err := kernelOf(l.On(l.Copy()))
				if err != nil {
					t.Skip(err) // TestPTX knows which
				}
				if known[k.IR] == nil {
					known[k.IR] = newHostKernel(t, c, k)
				}
				if runs[k.IR]++; runs[k.IR] > scale.Of(1, mostLaunches) {
					continue
				}
				want := l.Copy()
				cr := cardRun{t: t}
				cr.execute(l.On(want))
				low, memory := spread(t, l)
				require.Zero(t, known[k.IR].run(t, l.On(l.Copy()), memory, low))
				got := make(launches.Pages)
				for addr := range want {
					got[addr] = memory[addr-low:][:pageSize]
				}
				require.Empty(t, differing(got, want), "launch %d", n)
			}
		})
	}
}

// Kernels of programs with divergence and loops, which know nothing of other threads, stay the same.
func TestRandomKernels(t *testing.T) {
	c := jittest.Compiler(t)
	r := rand.New(rand.NewPCG(9, 1))
	n, changed := scale.Of(30, 1000), 0
	for i := range n {
		text := kernel(r, i%4 == 1)
		if sameKernel(t, c, text, [...][3]uint32{{96, 1, 1}, {16, 5, 1}, {5, 3, 2}}[r.IntN(3)], r.Uint32N(6)) {
			changed++
		}
	}
	require.Greater(t, changed, n*9/10, "programs that left something") // few have zeros as their result
}

// What only kernels do otherwise.
func TestKernelParts(t *testing.T) {
	c := jittest.Compiler(t)
	for name, text := range map[string]string{
		"registers begin as zero": "again:\nadd b32 $r0 $r0 0x3\nadd b32 $r3 $r3 0x1\nset $p0 0x1 lt u32 $r3 0x5\n$p0 bra again",
		"parts of constants":      "ld u8 $r0 c0[0x9]\nld u16 $r1 c0[0xa]\nld u8 $r2 c0[0xf]\nadd b32 $r0 $r0 $r1\nadd b32 $r0 $r0 $r2",
		"lanes":                   "mov b32 $r0 $laneid",
		"warps":                   "mov b32 $r0 $physid",
	} {
		t.Run(name, func(t *testing.T) {
			require.True(t, sameKernel(t, c, text+storeByThread, [3]uint32{5, 3, 4}, 0x76543210, 0xfedcba98))
		})
	}
}

// storeByThread stores $r0 by the number of the thread in blocks of 5, 3 and any.
const storeByThread = `
	mov b32 $r1 $tidx
	mov b32 $r2 $tidy
	mov b32 $r3 $tidz
	add $r2 (mul u32 $r3 u32 0x3) $r2
	add $r1 (mul u32 $r2 u32 0x5) $r1
	ld b64 $r4d c0[0x0]
	add b32 $r4 $c (shl $r1 0x2) $r4
	add b32 $r5 $r5 0x0 $c
	st b32 wb g[$r4d] $r0
	exit`

// sameKernel compares a kernel with an executor. It reports whether they changed memory.
func sameKernel(t *testing.T, c *llvm.Compiler, text string, block [3]uint32, args ...uint32) (changed bool) {
	m := smtest.NewMemory(assemble(t, text), args...)
	want := append(smtest.Memory(nil), m...)
	l := newLaunch(m, block)
	k, err := kernelOf(l)
	require.NoError(t, err, text)
	slow := *l
	slow.Memory, slow.Program = want, &interp.Program{Memory: want, Base: smtest.Base}
	cr := cardRun{t: t}
	cr.execute(&slow)
	changed = !bytes.Equal(m, want)
	require.Zero(t, newHostKernel(t, c, k).run(t, l, m, smtest.Base), text)
	require.True(t, bytes.Equal(m, want), text)
	return changed
}

// A kernel stops where an address is outside of its memory, or odd, and says where.
func TestKernelFault(t *testing.T) {
	c := jittest.Compiler(t)
	for access, at := range map[string]uint64{
		"mov b32 $r4 0x10\nmov b32 $r5 0x0\nld b32 $r0 ca g[$r4d]\nexit": 0x10,
		"mov b32 $r4 0x2\nld b32 $r0 s[$r4]\nexit":                       0x8,
		"mov b32 $r4 0x1000\nst b32 s[$r4] $r0\nexit":                    0x8,
	} {
		m := smtest.NewMemory(assemble(t, access))
		l := newLaunch(m, [3]uint32{1, 1, 1})
		k, err := kernelOf(l)
		require.NoError(t, err)
		require.Equal(t, uint64(compile.Fault)<<32|at, newHostKernel(t, c, k).run(t, l, m, smtest.Base), access)
	}
}

// spread puts the pages of a launch into one buffer, at their distances.
func spread(t testing.TB, l *launches.Launch) (uint64, smtest.Memory) {
	low, high := bounds(l)
	m, err := unix.Mmap(-1, 0, int(high-low), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_NORESERVE)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(m) })
	for addr, b := range l.Pages {
		copy(m[addr-low:], b)
	}
	return low, m
}
