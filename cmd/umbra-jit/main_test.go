package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/jit"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// count adds one to a word in each thread, 100 times.
const count = `
	ld b64 $r4d c0[0x0]
	mov b32 $r1 0x1
	mov b32 $r3 0x64
again:
	red add u32 g[$r4d+0x10] $r1
	sub b32 $r3 $r3 0x1
	set $p0 0x1 ne u32 $r3 0x0
	$p0 bra again
	exit`

// endless loads the same word for ever.
const endless = `
	ld b64 $r4d c0[0x0]
again:
	ld b32 $r1 ca g[$r4d]
	add b32 $r2 $r2 $r1
	bra again`

func (r *rig) counted() uint32 { return r.memory.Word(4) }

// Each thread of each block runs once, as machine code, whatever the step's end cuts.
func TestRun(t *testing.T) {
	r := newRig(t, realLibrary(t), count)
	require.Equal(t, engine.NativeResult{Outcome: engine.RanNative}, r.run())
	require.EqualValues(t, 64*64*100, r.counted())
	st := &r.compiler.Stats
	require.Greater(t, st.Native.Load(), 100*st.Interpreted.Load())
	require.EqualValues(t, 1, st.Compiled.Load())
	require.Empty(t, r.lines())
	require.Empty(t, st.NoStart())
}

// A library that nobody names is the system's, or that in the folder of dependencies.
func TestUnnamedLibrary(t *testing.T) {
	cfg := realLibrary(t)
	cfg.LLVM, cfg.Dependencies = "", filepath.Dir(cfg.LLVM)
	r := newRig(t, cfg, count)
	require.Equal(t, engine.RanNative, r.run().Outcome, r.lines())
	require.EqualValues(t, 64*64*100, r.counted())
}

// A program that does not end is stopped with the step, and goes on in the server from there.
func TestStop(t *testing.T) {
	r := newRig(t, realLibrary(t), endless)
	r.native.Run(r.job) // compiles
	start := time.Now()
	require.Equal(t, engine.RanNative, r.native.Run(r.job).Outcome)
	require.Less(t, time.Since(start), 500*time.Millisecond)
	begun := 0
	for i := range r.job.Grid.Running {
		b := &interp.Block{Launch: &r.launch, BlockState: &r.job.Grid.Running[i]}
		if b.Done() {
			continue // the step was over before its thread woke
		}
		begun++
		_, fault := b.Step(1000)
		require.Nil(t, fault)
	}
	require.Positive(t, begun)
	require.Equal(t, engine.RanNative, r.native.Run(r.job).Outcome, "and back")
}

// An instruction that is wrong comes back to the server before it has an effect.
func TestFault(t *testing.T) {
	r := newRig(t, realLibrary(t), "mov b32 $r4 0x4\nmov b32 $r5 0x0\nld b32 $r5 ca g[$r4d]\nexit")
	out := r.native.Run(r.job)
	require.Equal(t, engine.NeedsProcessor, out.Outcome)
	b := &interp.Block{Launch: &r.launch, BlockState: &r.job.Grid.Running[out.Slot]}
	_, fault := b.Step(1)
	require.ErrorContains(t, fault, "address not mapped at 0x10")
	require.ErrorContains(t, fault, "address 0x4")
}

// A program that needs the server all the time stays there.
func TestComesBack(t *testing.T) {
	r := newRig(t, realLibrary(t), "mov b32 $r3 0x1000\nagain:\ntex t lzero all dfp $r12:$r13:$r14:$r15 t2d $t0 $s0 $r16:$r17 ()\nsub b32 $r3 $r3 0x1\nset $p0 0x1 ne u32 $r3 0x0\n$p0 bra again\nexit")
	n := 0
	for out := r.native.Run(r.job); out.Outcome == engine.NeedsProcessor; out = r.native.Run(r.job) {
		b := &r.job.Grid.Running[out.Slot]
		b.Warps[b.Turn].PC += 8 // as if it had been executed
		n++
	}
	require.Less(t, n, 100)
	require.Equal(t, map[string]uint64{"it needs the server too often": 1}, r.compiler.Stats.Why())
}

// Code that the guest replaced does not run.
func TestChangedProgram(t *testing.T) {
	r := newRig(t, realLibrary(t), count)
	r.run()
	r.program(strings.Replace(count, "$r1 0x1", "$r1 0x2", 1))
	r.grid()
	r.job.Number++
	require.Equal(t, engine.RanNative, r.run().Outcome)
	require.EqualValues(t, 2*64*64*100, r.counted())
}

// A process that gets no processor, for longer than one that hangs is given, goes on.
func TestStarved(t *testing.T) {
	r := newRig(t, realLibrary(t), strings.Replace(count, "again:", `
	waits:
	ld b32 $r6 cv g[$r4d+0x14]
	set $p0 0x1 eq u32 $r6 0x0
	$p0 bra waits
	again:`, 1))
	require.Equal(t, engine.RanNative, r.native.Run(r.job).Outcome)
	pid := r.child()
	go func() { // the steps of the program follow each other until it is allowed to end
		time.Sleep(20 * time.Millisecond)
		_ = unix.Kill(pid, unix.SIGSTOP)
		time.Sleep(1500 * time.Millisecond)
		r.memory[smtest.Data-smtest.Base+0x14] = 1
		_ = unix.Kill(pid, unix.SIGCONT)
	}()
	require.Equal(t, engine.RanNative, r.run().Outcome)
	require.EqualValues(t, 64*64*100, r.counted())
	require.Zero(t, r.compiler.Stats.Lost.Load())
}

// The process has no privileges, no files but those of the server, and cannot open any.
func TestConfined(t *testing.T) {
	r := newRig(t, realLibrary(t), count)
	r.run()
	pid := r.child()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	for _, line := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"} {
		require.Contains(t, string(status), line)
	}
	if os.Geteuid() != 0 {
		return // it is not dumpable
	}
	files, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, f := range files {
		to, err := os.Readlink(f)
		require.NoError(t, err)
		require.Regexp(t, `^(socket:|pipe:|anon_inode:|/memfd:|/dev/null)`, to)
	}
}

// A process that ends between two steps costs nothing: the launch goes on here.
func TestKilledBetweenSteps(t *testing.T) {
	r := newRig(t, realLibrary(t), count)
	r.job.Left = func() uint64 { return 1000 }
	require.Equal(t, engine.RanNative, r.native.Run(r.job).Outcome)
	require.NoError(t, unix.Kill(r.child(), unix.SIGKILL))
	require.Equal(t, engine.NotNative, r.run().Outcome)
	require.Nil(t, r.rest())
	require.EqualValues(t, 64*64*100, r.counted())
	require.Len(t, r.lines(), 1)
	require.Contains(t, r.lines()[0], "signal: killed")
}

// A process that ends in a step ends the launch with a fault, and says so once. The guest's next program finds another.
func TestLostInStep(t *testing.T) {
	for name, lose := range map[string]func(r *rig){
		"signal: killed": func(r *rig) { require.NoError(t, unix.Kill(r.child(), unix.SIGKILL)) },
		"SIGBUS":         func(r *rig) { require.NoError(t, r.file.Truncate(0)) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, realLibrary(t), endless)
			require.Equal(t, engine.RanNative, r.native.Run(r.job).Outcome)
			r.job.Left = func() uint64 { return uint64(time.Minute) }
			timer := time.AfterFunc(100*time.Millisecond, func() { lose(r) })
			defer timer.Stop()
			out := r.native.Run(r.job)
			require.Equal(t, engine.NativeFault, out.Outcome)
			require.ErrorContains(t, out.Fault, "lost with its process")
			require.Len(t, r.lines(), 1)
			require.Contains(t, r.lines()[0], name)
			require.EqualValues(t, 1, r.compiler.Stats.Lost.Load())
			require.NoError(t, r.file.Truncate(int64(len(r.memory))))
			r.program(count)
			r.grid()
			r.job.Number++
			require.Equal(t, engine.NotNative, r.native.Run(r.job).Outcome, "there is a pause")
			time.Sleep(1100 * time.Millisecond)
			require.Equal(t, engine.RanNative, r.run().Outcome)
			require.EqualValues(t, 64*64*100, r.counted())
		})
	}
}

// Without umbra-jit or its library programs run interpreted, and one line says why and what to do.
func TestMissing(t *testing.T) {
	notELF := filepath.Join(t.TempDir(), "library")
	require.NoError(t, os.WriteFile(notELF, []byte("no library"), 0o600))
	const noProgram, noLibrary = "install the umbra-jit of this release", "install libLLVM 19"
	for why, c := range map[string]struct {
		cfg  jit.Config
		want string
	}{
		"no such file or directory": {jit.Config{Program: "/nowhere/umbra-jit"}, noProgram},
		"libLLVM.so.99":             {jit.Config{LLVM: "libLLVM.so.99"}, noLibrary},
		"has no function LLVM":      {jit.Config{LLVM: "libm.so.6"}, noLibrary},
		notELF:                      {jit.Config{LLVM: notELF}, noLibrary},
		"exit status":               {jit.Config{Program: "/bin/false"}, noProgram},
	} {
		cfg := c.cfg
		cfg.Always, cfg.Wait = true, true
		r := newRig(t, cfg, count)
		require.Empty(t, r.compiler.Stats.NoStart())
		for range 3 {
			require.Equal(t, engine.NotNative, r.native.Run(r.job).Outcome)
		}
		require.Nil(t, r.rest())
		require.EqualValues(t, 64*64*100, r.counted())
		require.Len(t, r.lines(), 1)
		require.Contains(t, r.lines()[0], why)
		require.Contains(t, r.lines()[0], c.want)
		require.Contains(t, r.lines()[0], r.compiler.Stats.NoStart())
		require.Contains(t, r.compiler.Stats.NoStart(), why)
	}
}

// The assembly of IR has its functions, and IR that is wrong is named.
func TestAssemble(t *testing.T) {
	cfg := realLibrary(t)
	self, err := os.Executable()
	require.NoError(t, err)
	const refused, tooLong = "the IR is not valid", "the IR has more than 16777216 bytes"
	for ir, want := range map[string]string{
		"define void @warp() {\nret void\n}\n": "warp:",
		"define nonsense":                      refused,
		strings.Repeat("; ", 8<<20) + ";":      tooLong,
	} {
		cmd := exec.Command(self, jit.Assemble, cfg.LLVM, cfg.Dependencies)
		cmd.Stdin = strings.NewReader(ir)
		text, err := cmd.CombinedOutput()
		require.Contains(t, string(text), want)
		require.Equal(t, want != refused && want != tooLong, err == nil)
	}
}
