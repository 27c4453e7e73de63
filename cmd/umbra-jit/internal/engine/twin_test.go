package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
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
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

// twins are the same block in interp and as compiled code.
type twins struct {
	slow            *interp.Block
	launch          *interp.Launch // of the compiled code
	memory, fastMem smtest.Memory
	differs         func() string // in words, between their memories
	code            *Code
	runner          *Runner
	work            state.Work
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
	table   *Pages // one for all tests: it is large
	support *Support
)

// sharedParts makes what all tests share.
func sharedParts(t testing.TB, c *llvm.Compiler) {
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
	w := &twins{memory: smtest.NewMemory(code)}
	if prepare != nil {
		prepare(w.memory)
	}
	w.fastMem = pinned(t, w.memory)
	w.slow = interp.NewBlock(newLaunch(w.memory, size), [3]uint32{0, 0, 0})
	w.launch = newLaunch(w.fastMem, size)
	sharedParts(t, c)
	var err error
	require.NoError(t, table.Map(smtest.Base, w.fastMem, compile.PageReadable|compile.PageWritable))
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
	w.launch.Memory = table.Memory()
	w.runner, err = w.code.NewRunner(w.launch, table, newImage(t, w.launch))
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
	for n := range w.launch.Grid[0] * w.launch.Grid[1] * w.launch.Grid[2] {
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
		require.Less(t, turn, 200_000, text)
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
	r.Turns = make([]state.Turn, 0, 6)
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
	require.Nil(t, slow, "only interp\n%s", text)
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
	w.compare(t, text)
	return false, nil
}

// compare looks for differences between the two.
func (w *twins) compare(t testing.TB, text string) {
	fast, err := w.runner.Block()
	require.NoError(t, err, text)
	for n := range fast.Warps {
		v := &w.runner.image.All[n]
		if d := difference(&w.slow.Warps[n], &fast.Warps[n], w.runner.code.site(v)); d != "" {
			require.Fail(t, "interp and the compiled code differ", "block %v warp %d: %s\n%s", w.slow.ID, n, d, text)
		}
	}
	if d := w.differs(); d != "" {
		require.Fail(t, "memory differs", "%s\n%s", d, text)
	}
	require.Equal(t, w.slow.Barriers, fast.Barriers, text)
	require.Equal(t, w.slow.ID, fast.ID, text)
	require.Equal(t, w.slow.Clock, fast.Clock, text)
}

// site is where the code stopped a warp last, nil if something else ran it since.
func (x *Code) site(w *state.Warp) *compile.Site {
	if w.Site < uint32(len(x.Program.Sites)) {
		return &x.Program.Sites[w.Site]
	}
	return nil
}

// difference says in words where two warps differ that stopped at a place: of the registers only those count
// that somebody reads later.
func difference(v, w *interp.Warp, at *compile.Site) string {
	if v.Done() && w.Done() {
		return ""
	}
	if v.PC != w.PC || v.Active != w.Active || v.Exited != w.Exited || v.Wait != w.Wait || len(v.Stack) != len(w.Stack) {
		return fmt.Sprintf("control: PC %#x active %#x exited %#x wait %d stack %v, not %#x %#x %#x %d %v",
			w.PC, w.Active, w.Exited, w.Wait, w.Stack, v.PC, v.Active, v.Exited, v.Wait, v.Stack)
	}
	if v.Wait != interp.NoBarrier && (v.WaitPC != w.WaitPC || v.WaitBy != w.WaitBy) {
		return fmt.Sprintf("waits at %#x with %#x, not at %#x with %#x", w.WaitPC, w.WaitBy, v.WaitPC, v.WaitBy)
	}
	for i := range v.Stack {
		if v.Stack[i] != w.Stack[i] {
			return fmt.Sprintf("stack: %v, not %v", w.Stack, v.Stack)
		}
	}
	if at == nil {
		return ""
	}
	flags := func(w *interp.Warp) [4]uint32 {
		return [4]uint32{w.Flags.Zero, w.Flags.Sign, w.Flags.Carry, w.Flags.Overflow}
	}
	for _, s := range at.Live {
		switch {
		case s >= compile.FirstFlag:
			if i := s - compile.FirstFlag; (flags(v)[i]^flags(w)[i])&v.Active != 0 {
				return fmt.Sprintf("flag %d: %#x, not %#x", i, flags(w)[i], flags(v)[i])
			}
		case s >= compile.FirstPred:
			if i := s - compile.FirstPred; (v.Preds[i]^w.Preds[i])&v.Active != 0 {
				return fmt.Sprintf("$p%d: %#x, not %#x", i, w.Preds[i], v.Preds[i])
			}
		default:
			for lane := range compile.Lanes {
				if v.Active>>lane&1 != 0 && v.Regs[s][lane] != w.Regs[s][lane] {
					return fmt.Sprintf("$r%d of lane %d: %#x, not %#x", s, lane, w.Regs[s][lane], v.Regs[s][lane])
				}
			}
		}
	}
	return ""
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

// pieces are lines that a program may have anywhere. They change $r0, or memory: each thread has its own
// address of the data in $r60d, and of shared memory in $r59. Those of its row are in $r48d and $r55, and its own
// in the row in $r56.
var pieces = []string{
	"ld b32 $r20 ca g[$r60d+0x10]\nadd b32 $r0 $r0 $r20",
	"st b32 wb g[$r60d+0x20] $r0",
	"ld u8 $r20 ca g[$r60d+0x21]\nxor b32 $r0 $r0 $r20",
	"mov b32 $r20 $r0\nshr u32 $r21 $r0 clamp 0x3\nst b64 wb l[0x8] $r20d\nld b32 $r20 ca l[0xc]\nadd b32 $r0 $r0 $r20",
	"st b32 s[$r59] $r0",
	"ld b32 $r20 s[$r59+0x4]\nadd b32 $r0 $r0 $r20",
	"and b32 $r22 $r0 0x3fc\nld b32 $r20 s[$r22]\nxor b32 $r0 $r0 $r20",
	"and b32 $r22 $r0 0x3fc\nadd b32 $r22 $c $r22 $r58\nadd b32 $r23 0x0 $r57 $c\nld b32 $r20 ca g[$r22d]\nadd b32 $r0 $r0 $r20",
	"red add u32 g[$r60d+0x8] $r0",
	"cvt rn f32 $r20 u32 $r0\nfma rn f32 $r20 $r20 $r20 $r20\nxor b32 $r0 $r0 $r20",
	"mul rn f32 $r20 $r0 $r0\nrcp f32 $r21 $r20\nmin f32 $r20 $r20 $r21\nadd b32 $r0 $r0 $r20",
	"add rn f32 $r20 $r0 neg $r0\nset $p1 0x1 gt f32 $r20 $r0\nselp b32 $r20 $r20 $r0 $p1\nxor b32 $r0 $r0 $r20",
	"add rn f32 $r20 $r0 $r0\nset $p1 0x1 lt u32 $r0 0x40\nselp b32 $r0 $r20 $r0 $p1",
	"vote any $r20 $p1 $p0\nadd b32 $r0 $r0 $r20",
	"st b32 s[$r56] $r0",
	"ld b32 $r20 s[$r55+0x8]\nadd b32 $r0 $r0 $r20",
	"ld b64 $r20d s[$r55+0x10]\nxor b32 $r0 $r0 $r21",
	"ld b32 $r20 s[$r56+0x40]\nadd b32 $r0 $r0 $r20",
	"ld b32 $r20 ca g[$r48d+0x10]\nadd b32 $r0 $r0 $r20",
	"ld lock b32 $p1 $r20 s[$r59+0x800]\nadd b32 $r0 $r0 $r20\n$p1 add b32 $r0 $r0 0x1",
	"st unlock b32 s[$r59+0x800] $r0",
}

// conditions end a loop over $r40.
var conditions = []string{
	"set $p2 0x1 ge s32 $r40 c0[0x8]\n$p2 brk", "set $p2 0x1 gt u32 $r40 c0[0x8]\n$p2 brk",
	"set $p2 0x1 lt u32 $r40 c0[0x8]\n(not $p2) brk", "set $p2 0x1 le s32 $r40 c0[0x8]\n(not $p2) brk",
	"set $p2 0x1 eq u32 $r40 c0[0x8]\n$p2 brk", "mov b32 $r44 c0[0x8]\nset $p2 0x1 le u32 $r44 $r40\n$p2 brk",
}

// counted is a loop up to a constant of the launch. What it does depends on what is known of the counter.
func counted(r *rand.Rand, label int) string {
	return fmt.Sprintf(`mov b32 $r40 0x0
prebrk out%[1]d
in%[1]d:
%[2]s
set $p3 0x1 lt u32 $r40 0xff
selp b32 $r41 $r40 0x100 $p3
add b32 $r0 $r0 $r41
shr s32 $r42 $r40 clamp 0x1f
shl b32 $r41 $r40 clamp 0x2
add b32 $r41 $r41 $r56
and b32 $r41 $r41 0x7fc
ld b32 $r43 s[$r41]
add b32 $r43 $r43 $r42
add b32 $r0 $r0 $r43
add b32 $r40 $r40 0x1
bra in%[1]d
out%[1]d:
set $p3 0x1 lt u32 $r40 0xff
mov b32 $r41 0x1
selp b32 $r41 $r41 0x100 $p3
add b32 $r0 $r0 $r41
set $p3 0x1 gt u32 $r40 0xff
selp b32 $r41 $r41 0x1000 $p3
add b32 $r0 $r0 $r41
`, label, conditions[r.IntN(len(conditions))])
}

// nested divides lanes that were divided before, with nothing in between.
const nested = `
joinat joined
and b32 $r41 $r2 0x1
set $p1 0x1 ne u32 $r41 0x0
and b32 $r41 $r2 0x2
set $p2 0x1 ne u32 $r41 0x0
$p1 bra odd
add b32 $r0 $r0 0x1
join nop
odd:
$p2 bra third
add b32 $r0 $r0 0x20
join nop
third:
add b32 $r0 $r0 0x300
join nop
joined:
`

// random makes the text of a program. It may begin with a loop that all lanes are in.
func random(r *rand.Rand, loop bool) string {
	lines := strings.Split(smtest.Structured(r), "\n")
	for len(lines) > 100 { // what is longer takes LLVM's time, and most of it goes on in interp
		lines = strings.Split(smtest.Structured(r), "\n")
	}
	text := `
	mov b32 $r2 $tidx
	mov b32 $r0 $r2
	ld b64 $r60d c0[0x0]
	mov b32 $r58 $r60
	mov b32 $r57 $r61
	add b32 $r60 $c (shl $r2 0x2) $r60
	add b32 $r61 $r61 0x0 $c
	shl b32 $r59 $r2 clamp 0x2
	mov b32 $r54 $tid
	ext u32 $r53 $r54 0x1000
	ext u32 $r52 $r54 0xa10
	shl b32 $r55 $r52 clamp 0x6
	shl b32 $r51 $r53 clamp 0x2
	add b32 $r56 $r55 $r51
	add b32 $r48 $c $r55 $r58
	add b32 $r49 0x0 $r57 $c
`
	if r.IntN(3) == 0 {
		text += nested
	}
	loops := 0
	if loop {
		text += counted(r, loops)
	}
	for _, line := range lines {
		text += line + "\n"
		if strings.HasPrefix(line, "add b32 $r0 $r0") && r.IntN(2) == 0 {
			text += pieces[r.IntN(len(pieces))] + "\n"
		}
		if strings.HasPrefix(line, "add b32 $r0 $r0") && loops == 0 && r.IntN(4) == 0 {
			loops++
			text += counted(r, loops)
		}
	}
	return text + "bar popc 0x1 $r1 0x0 0x0 $p0\nadd b32 $r0 $r0 $r1" + smtest.Store
}

// Programs with divergence, loops, memory and barriers stay the same, wherever they are stopped: a third of
// them at every back edge.
func TestRandomPrograms(t *testing.T) {
	c := jittest.Compiler(t)
	r := rand.New(rand.NewPCG(5, 6))
	var compiled, interpreted uint64
	for i := range scale.Of(30, 1000) {
		long := i%4 == 1
		text := random(r, long)
		size := [...][3]uint32{{96, 1, 1}, {80, 1, 1}, {16, 5, 1}, {32, 3, 1}, {16, 4, 1}, {16, 6, 1}}[r.IntN(6)]
		code := assemble(t, text)
		limit := [...]byte{0, 1, 3, 5}[r.IntN(4)]
		if long { // as far as one may be that is known to be of 8 bits
			limit = 255
		}
		w := newTwins(t, c, llvm.Quick, code, size, func(m smtest.Memory) { m[smtest.Consts-smtest.Base+8] = limit })
		budget := func() uint64 { return 1 + r.Uint64N(2000) }
		if i%3 == 0 {
			budget = func() uint64 { return 1 }
		}
		require.Nil(t, w.run(t, text, budget), text)
		compiled, interpreted = compiled+w.runner.Compiled, interpreted+w.runner.Interpreted
	}
	require.Greater(t, compiled, interpreted, "instructions that were compiled, and that were not")
}
