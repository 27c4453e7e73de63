package engine

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/fermi"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile/state"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// twins are the same block in interp and as compiled code.
type twins struct {
	slow            *interp.Block
	launch          *interp.Launch // of the compiled code
	memory, fastMem smtest.Memory
	differs         func() string // in words, between their memories
	code            *Code
	pages           *Pages
	runner          *Runner
	work            state.Work
	stopped         func() // called where the code stopped after a warp's turn. If it is nil, it stops after some.
}

// pinned is memory at whole pages that stays where it is.
func pinned(t testing.TB, m smtest.Memory) smtest.Memory {
	p, err := unix.Mmap(-1, 0, len(m), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	copy(p, m)
	t.Cleanup(func() { unix.Munmap(p) })
	return p
}

func newLaunch(m smtest.Memory, size [3]uint32) *interp.Launch {
	l := &interp.Launch{
		Memory: m, Program: &interp.Program{Memory: m, Base: smtest.Base},
		Grid: [3]uint32{4, 1, 1}, Block: size,
		Registers: 63, Barriers: 16, Shared: 4096, Local: smtest.Local, LocalPos: 256, LocalNeg: 64, SharedWindow: 0xfe000000, LocalWindow: 0xff000000,
	}
	l.Banks[0] = interp.Bank{Addr: smtest.Consts, Size: 0x1000, Valid: true}
	return l
}

var (
	table   *Pages // of all tests that are not parallel: it is large
	support *Support
)

// sharedParts makes what all tests share.
func sharedParts(t testing.TB, c Compiler) {
	if table != nil {
		return
	}
	var err error
	table, err = NewPages()
	require.NoError(t, err)
	support, err = NewSupport(c)
	require.NoError(t, err)
}

func newTwins(t testing.TB, c *llvm.Compiler, passes string, code []uint64, size [3]uint32, prepare func(m smtest.Memory)) *twins {
	sharedParts(t, c)
	return newTwinsIn(t, table, c, passes, code, size, prepare)
}

// newTwinsIn makes twins in a table that no others use at the same time.
func newTwinsIn(t testing.TB, pages *Pages, c *llvm.Compiler, passes string, code []uint64, size [3]uint32, prepare func(m smtest.Memory)) *twins {
	w := &twins{memory: smtest.NewMemory(code), pages: pages}
	if prepare != nil {
		prepare(w.memory)
	}
	w.fastMem = pinned(t, w.memory)
	w.slow = interp.NewBlock(newLaunch(w.memory, size), [3]uint32{0, 0, 0})
	w.launch = newLaunch(w.fastMem, size)
	var err error
	require.NoError(t, pages.Map(smtest.Base, w.fastMem, compile.PageReadable|compile.PageWritable))
	w.differs = func() string {
		for i := 0; !bytes.Equal(w.memory, w.fastMem) && i < len(w.memory); i++ {
			if w.memory[i] != w.fastMem[i] {
				return fmt.Sprintf("at %#x: %#x, not %#x", i, w.fastMem[i], w.memory[i])
			}
		}
		return ""
	}
	o := fermi.Options(w.launch)
	o.MaxBlocks, o.MaxText = 100, 4<<20 // a test's time; what is beyond goes on in interp
	w.code, err = New(c, support, w.launch, o, passes)
	require.NoError(t, err)
	t.Cleanup(func() { w.code.Close() })
	w.start(t)
	return w
}

// start makes the runner of the code.
func (w *twins) start(t testing.TB) {
	var err error
	w.launch.Memory = w.pages.Memory()
	w.runner, err = w.code.NewRunner(w.launch, w.pages, newImage(t, w.launch))
	require.NoError(t, err)
}

// newImage is memory for a block, with something in it that is not to be seen.
func newImage(t testing.TB, l *interp.Launch) *state.Image {
	memory := make([]byte, state.Size(l.Warps(), l.Shared)+64)
	for i := range memory {
		memory[i] = 0xa5
	}
	memory = memory[-sliceAddress(memory)&63:]
	m, err := state.New(memory, l.Warps(), l.Shared)
	require.NoError(t, err)
	m.Begun = 0
	return m
}

// run executes blocks in both, some turns at a time, until they end or something differs.
func (w *twins) run(t testing.TB, text string, budget func() uint64) *interp.Fault {
	return w.blocks(t, text, budget, w.launch.Grid[0]*w.launch.Grid[1]*w.launch.Grid[2])
}

// blocks executes the first blocks.
func (w *twins) blocks(t testing.TB, text string, budget func() uint64, blocks uint32) *interp.Fault {
	for n := range blocks {
		w.slow.Reset([3]uint32{n % w.launch.Grid[0], n / w.launch.Grid[0] % w.launch.Grid[1], n / (w.launch.Grid[0] * w.launch.Grid[1])})
		w.work.Count++
		if fault := w.block(t, text, budget); fault != nil {
			return fault
		}
	}
	return nil
}

// block executes one.
func (w *twins) block(t testing.TB, text string, budget func() uint64) *interp.Fault {
	for turn := 0; ; turn++ {
		if turn == 200_000 {
			require.Fail(t, "the block does not end", text)
		}
		done, fault := w.turn(t, text, budget)
		if fault != nil {
			return fault
		}
		if done {
			require.True(t, w.slow.Done(), text)
			require.True(t, bytes.Equal(w.slow.Shared, w.runner.image.Memory), "shared memory\n%s", text)
			return nil
		}
	}
}

// turn executes some turns of warps, and as many instructions in interp. It returns the fault that both have.
func (w *twins) turn(t testing.TB, text string, budget func() uint64) (done bool, fault *interp.Fault) {
	r := w.runner
	turns := 6
	if w.stopped != nil {
		turns = 1
	}
	r.Turns = make([]state.Turn, 0, turns)
	r.context.Loop.Slice = budget()
	_, why := r.Run(&w.work, forever())
	var slow *interp.Fault
	steps := func(of []state.Turn) {
		for _, turn := range of {
			for range turn.Instructions {
				if slow == nil {
					n := int(turn.Warp)
					w.slow.Turn, w.slow.Left = n, 1
					slow = w.slow.StepWarp(n)
				}
			}
		}
	}
	steps(r.Turns)
	if slow != nil {
		require.Fail(t, "only interp has a fault", "%v\n%s", slow, text)
	}
	w.compare(t, text)
	switch why {
	case compile.Exhausted:
		return true, nil
	case compile.Deadlock:
		b, err := r.Block()
		require.NoError(t, err)
		fault, slow = b.Stuck(), w.slow.Stuck()
	case compile.Left:
		fault = r.Interpret()
		steps([]state.Turn{{Warp: r.image.Turn, Instructions: 1}})
	}
	if fault != nil || slow != nil {
		require.NotNil(t, fault, "only interp: %v\n%s", slow, text)
		require.NotNil(t, slow, "only the compiled code: %v\n%s", fault, text)
		require.EqualError(t, slow, fault.Error(), text)
		return true, fault
	}
	if why == compile.Left {
		w.compare(t, text)
	} else if w.stopped != nil {
		w.stopped()
	}
	return false, nil
}

// move lets interp have the block for some instructions, as the server has what a process leaves. It returns their number.
func (w *twins) move(t testing.TB, text string, n int) int {
	b, err := w.runner.Block()
	require.NoError(t, err, text)
	w.slow.Turn, w.slow.Left = b.Turn, b.Left
	ran, fault := b.Step(n)
	slowRan, slow := w.slow.Step(n)
	if ran != slowRan || fault != nil || slow != nil {
		require.Fail(t, "interp does not go on", "%d instructions and %v, not %d and %v\n%s", ran, fault, slowRan, slow, text)
	}
	require.NoError(t, w.runner.image.Put(b.BlockState), text)
	w.compare(t, text)
	return ran
}

// compare looks for differences between the two.
func (w *twins) compare(t testing.TB, text string) {
	fast, err := w.runner.Block()
	if err != nil { // this runs often, and the functions of require take long
		require.NoError(t, err, text)
	}
	for n := range fast.Warps {
		v := &w.runner.image.All[n]
		if d := difference(&w.slow.Warps[n], &fast.Warps[n], w.runner.code.site(v)); d != "" {
			require.Fail(t, "interp and the compiled code differ", "block %v warp %d: %s\n%s", w.slow.ID, n, d, text)
		}
	}
	if d := w.differs(); d != "" {
		require.Fail(t, "memory differs", "%s\n%s", d, text)
	}
	if s := w.slow; s.Barriers != fast.Barriers || s.ID != fast.ID || s.Clock != fast.Clock {
		require.Fail(t, "interp and the compiled code differ", "block %v at %d, barriers %v, not %v at %d, %v\n%s", fast.ID, fast.Clock, fast.Barriers, s.ID, s.Clock, s.Barriers, text)
	}
}

func forever() uint64 { return 1 << 40 }

func assemble(t testing.TB, text string) []uint64 {
	code, err := isa.Assemble(text)
	require.NoError(t, err)
	return code
}

// A program without branches runs as interp runs it.
func TestStraight(t *testing.T) {
	c := jittest.Compiler(t)
	text := "mov b32 $r0 $tidx\nadd b32 $r0 $r0 0x5" + smtest.Store
	w := newTwins(t, c, llvm.Quick, assemble(t, text), [3]uint32{64, 1, 1}, nil)
	require.Nil(t, w.run(t, text, forever))
	require.EqualValues(t, 5+63, w.fastMem.Word(63))
	t.Log(w.code.Program.Missing, w.code.Size)
}
