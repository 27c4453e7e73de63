package interp

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/tests/smtest"
)

// A lane computes in a warp what it computes alone.
func TestLanesDoNotDisturbEachOther(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		body := smtest.Structured(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
		code := assemble(t, "mov b32 $r2 $tidx\nadd b32 $r2 $r2 c0[0x8]\nmov b32 $r0 $r2\n"+body+smtest.Store)
		together := results(t, code, 40)
		for lane := range uint32(40) {
			require.Equal(t, results(t, code, 1, lane)[0], together[lane], "lane %d of\n%s", lane, body)
		}
	})
}

// Short forms take half a word each.
func TestShortForms(t *testing.T) {
	const (
		three = 0x00301d18 // mov b32 $r0 0x3
		twice = 0x00001c2c // add b32 $r0 $r0 $r0
	)
	require.EqualValues(t, 6, results(t, append([]uint64{twice<<32 | three}, assemble(t, smtest.Store)...), 1)[0])
}

// Compilers close a loop with a branch back: lanes that leave it wait.
func TestBackwardBranch(t *testing.T) {
	got := results(t, assemble(t, `
	mov b32 $r1 $tidx
	mov b32 $r0 0x0
	joinat end
loop:
	add b32 $r0 $r0 0x2
	sub b32 $r1 $r1 0x1
	set $p0 0x1 gt s32 $r1 0x0
	$p0 bra loop
	join nop
end:`+smtest.Store), 32)
	for i, v := range got {
		require.EqualValues(t, 2*max(i, 1), v)
	}
}

func TestCallsReturn(t *testing.T) {
	got := results(t, assemble(t, `
	mov b32 $r0 $tidx
	and b32 $r1 $r0 0x1
	set $p1 0x1 ne u32 $r1 0x0
	call double
	call double
	bra end
double:
	$p1 ret
	add b32 $r0 $r0 $r0
	ret
end:`+smtest.Store), 32)
	for i, v := range got {
		require.EqualValues(t, []int{4 * i, i}[i&1], v)
	}
}

func TestExitedLanesStayOut(t *testing.T) {
	m, fault := run(t, assemble(t, `
	mov b32 $r0 $tidx
	joinat end
	set $p0 0x1 lt u32 $r0 0x8
	$p0 bra out
	join add b32 $r0 $r0 0x64
out:
	exit
end:`+smtest.Store), 16)
	require.Nil(t, fault)
	for i := range 16 {
		require.EqualValues(t, []int{0, i + 100}[i/8], m.Word(i))
	}
}

func TestStackFaults(t *testing.T) {
	for program, want := range map[string]Cause{
		"join nop":                          StackMismatch,
		"brk":                               StackMismatch,
		"prebrk l\nl:\njoin nop":            StackMismatch,
		"l:\njoinat l\nbra l":               StackOverflow,
		"ret":                               StackMismatch,
		"bra l\nl:":                         IllegalInstruction, // off the end of the code
		"ld b32 $r0 c1[0x0]\nexit":          BadConstant,
		"ld b32 $r0 c0[0x1000]\nexit":       BadConstant,
		"ld b64 $r0d s[0x4]\nexit":          MisalignedAddress,
		"ld b32 $r0 s[0x1000]\nexit":        BadAddress,
		"ld b32 $r0 ca l[0x100]\nexit":      BadAddress,
		"ld b32 $r0 ca g[0x0]\nexit":        BadAddress,
		"st b64 wb g[$r0d] $r3d\nexit":      MisalignedRegister,
		"mov b32 $r62 $pm0\nexit":           NotImplemented,
		"cvt rn f64 $r62d s32 $r0\nexit":    BadRegister,
		"bar popc 0x1 0x0 0x0 0x2 0x1":      BadBarrier,
		"sin f32 $r0 $r1\nnever $c bra 0x0": NotImplemented,
	} {
		_, fault := run(t, assemble(t, program), 1)
		require.NotNil(t, fault, program)
		require.Equal(t, want, fault.Cause, "%s: %v", program, fault)
	}
}

func TestFaultSaysWhere(t *testing.T) {
	_, fault := run(t, assemble(t, "mov b32 $r0 $tidx\nset $p0 0x1 eq u32 $r0 0x21\n$p0 ld b32 $r1 ca g[$r0+0x3]\nexit"), 64)
	require.EqualError(t, fault, `address not mapped at 0x10 "$p0 ld b32 $r1 ca g[$r0+0x3]", block [0 0 0], warp 1, lane 1, address 0x24: load`)
}

func TestStepIsBounded(t *testing.T) {
	l, _ := prepare(assemble(t, "l:\nbra l"), 64)
	b := NewBlock(l, [3]uint32{})
	for range 3 {
		n, fault := b.Step(1000)
		require.Nil(t, fault)
		require.Equal(t, 1000, n)
	}
	require.EqualValues(t, 3000, b.Clock)
}

// Long programs run whole, and few of their instructions are kept.
func TestLongProgram(t *testing.T) {
	const n = 2*maxDecoded + 100
	code := assemble(t, "nop\nexit")
	m := make(smtest.Memory, 8*(n+1))
	for i := range n {
		binary.LittleEndian.PutUint64(m[8*i:], code[0])
	}
	binary.LittleEndian.PutUint64(m[8*n:], code[1])
	l := &Launch{Memory: m, Program: &Program{Memory: m, Base: smtest.Base}, Block: [3]uint32{1, 1, 1}}
	b := NewBlock(l, [3]uint32{})
	done, fault := b.Step(2 * n)
	require.Nil(t, fault)
	require.Equal(t, n+1, done)
	require.LessOrEqual(t, len(l.Program.insts), maxDecoded)
	ran := uint64(0)
	for _, times := range l.Program.Ran() {
		ran += times
	}
	require.EqualValues(t, n+1, ran)
}
