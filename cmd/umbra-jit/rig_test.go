package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/lab/fetch"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// TestMain makes the test's binary umbra-jit, too: the processes that tests start are itself.
func TestMain(m *testing.M) {
	args := os.Args[1:]
	if len(args) == 0 || strings.HasPrefix(args[0], "-test.") {
		os.Exit(m.Run())
	}
	if mode, ok := strings.CutPrefix(args[0], fakePrefix); ok {
		os.Exit(fake(mode, args))
	}
	main()
}

var library = sync.OnceValues(func() (fetch.LLVM, error) {
	dir, err := fetch.DefaultDir()
	if err != nil {
		return fetch.LLVM{}, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	return (&fetch.Cache{Dir: dir}).LLVM(ctx)
})

// realLibrary names the library, or skips the test if it cannot be had.
func realLibrary(t testing.TB) jit.Config {
	l, err := library()
	if err != nil {
		t.Skip("no libLLVM 19:", err)
	}
	return jit.Config{LLVM: l.File, Dependencies: l.Dir, Always: true, Wait: true}
}

// rig is a launch of a program whose memory is a file, in a process.
type rig struct {
	t        testing.TB
	compiler *jit.Compiler
	native   engine.Native
	memory   smtest.Memory // of file
	file     *os.File
	job      *engine.Job
	launch   interp.Launch // the same, for an executor of this process

	mu  sync.Mutex
	log []string
}

// newRig makes a launch of 64 blocks of 64 threads.
func newRig(t testing.TB, cfg jit.Config, text string) *rig {
	r := &rig{t: t}
	if cfg.Program == "" {
		self, err := os.Executable()
		require.NoError(t, err)
		cfg.Program = self
	}
	cfg.Log = func(format string, args ...any) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.log = append(r.log, fmt.Sprintf(format, args...))
	}
	fd, err := unix.MemfdCreate("guest", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	r.file = os.NewFile(uintptr(fd), "guest")
	t.Cleanup(func() { r.file.Close() })
	require.NoError(t, r.file.Truncate(smtest.Size))
	mem, err := unix.Mmap(fd, 0, smtest.Size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(mem) })
	r.memory = mem
	r.compiler = jit.New(cfg, r.file)
	t.Cleanup(r.compiler.Close)
	r.native = r.compiler.Of(0)
	r.program(text)
	const region = smtest.Base
	l := &sm.Launch{Program: region, Region: region, Grid: [3]uint32{64, 1, 1}, Block: [3]uint32{64, 1, 1}, Registers: 63, Barriers: 1, Shared: 256}
	r.job = &engine.Job{Launch: l, Number: 1, Places: r, Left: func() uint64 { return uint64(time.Millisecond) }}
	r.job.Blocks = interp.Launch{Grid: l.Grid, Block: l.Block, Registers: l.Registers, Barriers: l.Barriers, Shared: l.Shared}
	r.job.Blocks.Banks[0] = interp.Bank{Addr: smtest.Consts, Size: 0x1000, Valid: true}
	r.launch = r.job.Blocks
	r.launch.Memory, r.launch.Program = r.memory, &interp.Program{Memory: r.memory, Base: region}
	r.grid()
	return r
}

// program writes a program to the memory.
func (r *rig) program(text string) {
	code, err := isa.Assemble(text)
	require.NoError(r.t, err)
	copy(r.memory, smtest.NewMemory(code))
}

// grid begins the launch anew.
func (r *rig) grid() {
	r.job.Grid = &engine.Grid{Running: make([]interp.BlockState, 2), Blocks: uint64(r.launch.Grid[0]), Steps: 2}
}

// Place implements engine.Places.
func (r *rig) Place(va uint64, _ bool) (engine.Place, bool) {
	p := engine.Place{VA: smtest.Base, Size: smtest.Size, File: r.file, Write: true}
	return p, va-smtest.Base < smtest.Size
}

// Version implements engine.Places.
func (r *rig) Version() uint64 { return 1 }

// run runs steps in the process until the grid has ended, or something else happens.
func (r *rig) run() engine.NativeResult {
	for end := time.Now().Add(time.Minute); ; {
		if out := r.native.Run(r.job); out.Outcome != engine.RanNative || r.job.Grid.Ended() {
			return out
		}
		require.True(r.t, time.Now().Before(end), "the launch does not end")
	}
}

// rest executes what is left of the launch in this process.
func (r *rig) rest() *interp.Fault {
	g := r.job.Grid
	for i := range g.Running {
		b := &interp.Block{Launch: &r.launch, BlockState: &g.Running[i]}
		for {
			for !b.Done() {
				if _, fault := b.Step(1000); fault != nil {
					return fault
				}
			}
			n, ok := g.Take()
			if !ok {
				break
			}
			b.Reset([3]uint32{uint32(n), 0, 0})
		}
	}
	return nil
}

func (r *rig) lines() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.log...)
}

// child returns the process that runs the program.
func (r *rig) child() int {
	children, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(r.t, err)
	for _, name := range children {
		list, _ := os.ReadFile(name)
		for field := range strings.FieldsSeq(string(list)) {
			pid, err := strconv.Atoi(field)
			require.NoError(r.t, err)
			return pid
		}
	}
	require.Fail(r.t, "there is no process")
	return 0
}
