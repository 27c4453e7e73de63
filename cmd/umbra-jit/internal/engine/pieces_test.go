package engine

import (
	"fmt"
	"math/rand/v2"
)

// pieces are lines that a program may have anywhere. They change $r0, or memory, and read what setup defines.
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
	"ld add u32 $r20 g[$r60d+0x40] $r0\nxor b32 $r0 $r0 $r20",
	"red max s32 g[$r48d+0x80] $r0",
	"red or u32 g[$r60d+0xc] $r0",
	"red inc u32 g[$r48d+0x8] $r0",
	"ld b32 $r20 c0[0xc]\nadd b32 $r0 $r0 $r20",
}

// uniform are the pieces, by number, of which nothing depends on other threads or memory.
var uniform = pieces[9:13]

// barriers are lines that all warps of a block have to reach.
var barriers = []string{
	"bar popc 0x1 $r1 0x0 0x0 $p0\nadd b32 $r0 $r0 $r1\n",
	"bar popc 0x1 0x0 0x0 0x0 0x1\n",
	"bar or $p1 0x0 0x0 0x0 $p0\nselp b32 $r20 $r0 0x7 $p1\nxor b32 $r0 $r0 $r20\n",
}

// conditions end a loop over $r40.
var conditions = []string{
	"set $p2 0x1 ge s32 $r40 c0[0x8]\n$p2 brk", "set $p2 0x1 gt u32 $r40 c0[0x8]\n$p2 brk",
	"set $p2 0x1 lt u32 $r40 c0[0x8]\n(not $p2) brk", "set $p2 0x1 le s32 $r40 c0[0x8]\n(not $p2) brk",
	"set $p2 0x1 eq u32 $r40 c0[0x8]\n$p2 brk", "mov b32 $r44 c0[0x8]\nset $p2 0x1 le u32 $r44 $r40\n$p2 brk",
	"mov b32 $r44 c0[0x8]\nset $p2 0x1 lt u32 $r44 $r40\n$p2 brk",
}

// counted is a loop up to a constant of the launch, from 0 or from just before it. What it does depends on what is known of the counter:
// whether that can be 0, or near farthest.
func counted(r *rand.Rand, label int) string {
	start := [...]string{"mov b32 $r40 0x0", "mov b32 $r44 c0[0x8]\nand b32 $r40 $r44 0xfe"}[r.IntN(2)]
	return start + fmt.Sprintf(`
prebrk out%[1]d
in%[1]d:
%[2]s
set $p3 0x1 lt u32 $r40 %#[3]x
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
set $p3 0x1 lt u32 $r40 %#[3]x
mov b32 $r41 0x1
selp b32 $r41 $r41 0x100 $p3
add b32 $r0 $r0 $r41
set $p3 0x1 gt u32 $r40 %#[3]x
selp b32 $r41 $r41 0x1000 $p3
add b32 $r0 $r0 $r41
`, label, conditions[r.IntN(len(conditions))], [...]int{1, farthest - 1, farthest, farthest + 1}[r.IntN(4)])
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
