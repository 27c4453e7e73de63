package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/jittest"
	"github.com/umbra-gpu/umbra/cmd/umbra-jit/internal/llvm"
	"github.com/umbra-gpu/umbra/tests/scale"
	"github.com/umbra-gpu/umbra/tests/smtest"
)

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

// random makes the text of a program, whose result is in $r0 before it ends. It may begin with a loop that all lanes are in.
func random(r *rand.Rand, loop bool, pieces []string) string {
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
	return text
}

// Programs with divergence, loops, memory and barriers stay the same, wherever they are stopped: a third of
// them at every back edge.
func TestRandomPrograms(t *testing.T) {
	c := jittest.Compiler(t)
	r := rand.New(rand.NewPCG(5, 6))
	var compiled, interpreted uint64
	for i := range scale.Of(30, 1000) {
		long := i%4 == 1
		text := random(r, long, pieces) + "bar popc 0x1 $r1 0x0 0x0 $p0\nadd b32 $r0 $r0 $r1" + smtest.Store
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
