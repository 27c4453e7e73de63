package shim

import (
	"math"
	"math/bits"
)

// directed are programs for what Mesa's compiler does not emit, or seldom. A program finds its
// arguments in $r4 and up, its number in $r20, the address of 2 KiB of zeros in $r2d, and leaves its
// result in $r0 and, if it has 64 bits, in $r1, which is zero at first.
var directed = []struct {
	text    string
	args    []any // of 32 or 64 bits
	threads int   // 0 is one
	want    any   // of 32 or 64 bits, or a function of the thread's number
}{
	// f32
	{text: "min f32 $r0 $r4 $r5", args: list(-2.5, 1.5), want: float32(-2.5)},
	{text: "max ftz f32 $r0 abs $r4 $r5", args: list(-2.5, 1.5), want: float32(2.5)},
	{text: "add ftz f32 $r0 $r4 0x40490fdb", args: list(1.0), want: float32(1) + math.Float32frombits(0x40490fdb)},
	{text: "add rn f32 $r0 $r4 $r5", args: list(2.5, 0.25), want: float32(2.75)},
	{text: "add rn f32 $r0 neg $r4 $r5", args: list(2.5, 0.25), want: float32(-2.25)},
	{text: "mul rn f32 $r0 $r4 $r5", args: list(2.5, 0.25), want: float32(0.625)},
	{text: "mul f32 $r0 $r4 0x40490fdb", args: list(2.0), want: math.Float32frombits(0x40c90fdb)},
	{text: "fma rn f32 $r0 $r4 $r5 c0[0x10]", args: list(2.0, 3.0, 4.0), want: float32(10)},
	{text: "fma rn f32 $r0 $r4 c0[0x10] $r5", args: list(2.0, 3.0, 4.0), want: float32(11)},
	{text: "fma rn f32 $r0 neg $r4 $r5 $r6", args: list(2.0, 3.0, 4.0), want: float32(-2)},
	{text: "fma f32 $r6 $r4 0x40400002 $r6\nmov b32 $r0 $r6", args: list(2.0, 3.0, 4.0), want: math.Float32frombits(0x41200001)},
	{text: "slct b32 $r0 $r4 $r5 le f32 $r6", args: list(11, 12, -1.0), want: 11},
	{text: "set $p0 0x1 gtu f32 $r4 $r5\nselp b32 $r0 $r5 $r6 $p0", args: list(2.0, 1.0, 7), want: float32(1)},
	{text: "set $p0 0x1 lt f32 $r4 $r5\nselp b32 $r0 $r5 $r6 $p0", args: list(2.0, 1.0, 7), want: 7},
	{text: "set b32 $r0 eq f32 $r4 $r5", args: list(2.0, 2.0), want: uint32(0xffffffff)},
	{text: "cos f32 $r0 $r4", args: list(0.0), want: float32(1)},
	{text: "sin f32 $r0 $r4", args: list(0.0), want: float32(0)},
	{text: "ex2 f32 $r0 neg $r4", args: list(3.0), want: float32(0.125)},
	{text: "ex2 f32 $r0 $r4", args: list(3.0), want: float32(8)},
	{text: "lg2 f32 $r0 abs $r4", args: list(-8.0), want: float32(3)},
	{text: "rcp f32 $r0 $r4", args: list(-8.0), want: float32(-0.125)},
	{text: "rsqrt f32 $r0 abs $r4", args: list(-16.0), want: float32(0.25)},
	{text: "rcp64h $r0 $r5", args: list(wide(8)), want: uint32(math.Float64bits(0.125) >> 32)},
	{text: "rsqrt64h $r0 $r5", args: list(wide(16)), want: uint32(math.Float64bits(0.25) >> 32)},
	{text: "presin f32 $r10 $r4\nsin f32 $r10 $r10\nmul rn f32 $r10 $r10 $r5\ncvt rni s32 $r0 f32 $r10",
		args: list(math.Pi/6, 1000.0), want: 500},
	{text: "preex2 f32 $r10 $r4\nex2 f32 $r0 $r10", args: list(5.0), want: float32(32)},
	{text: "quadon\ncvt rn f32 $r4 u32 $r20\nquadop rn f32 sub subr sub subr $r5 dall dx $r4 $r4\nquadpop\nmov b32 $r0 $r5",
		threads: 8, want: float32(1)},

	// f64
	{text: "min f64 $r0d $r4d $r6d", args: list(wide(-2), wide(3)), want: wide(-2)},
	{text: "set b32 $r0 ge f64 $r4d $r6d", args: list(wide(3), wide(3)), want: uint32(0xffffffff)},
	{text: "set $p1 0x1 ne f64 $r4d $r6d\nselp b32 $r0 $r20 $r8 $p1", args: list(wide(3), wide(3), 5), want: 5},
	{text: "fma rn f64 $r0d $r4d $r6d $r8d", args: list(wide(3), wide(0.5), wide(0.25)), want: wide(1.75)},
	{text: "add rz f64 $r0d $r4d neg $r6d", args: list(wide(3), wide(0.5)), want: wide(2.5)},
	{text: "mul rn neg f64 $r0d $r4d $r6d", args: list(wide(3), wide(0.5)), want: wide(-1.5)},

	// integers
	{text: "add $r0 (mul u32 $r4 u32 0x12345678) $r0", args: list(3), want: uint32(3 * 0x12345678)},
	{text: "add $r0 (mul u32 $r4 u32 $r5) $r6", args: list(3, 5, 7), want: 22},
	{text: "add $r0 (mul u32 $r4 u32 c0[0xc]) $r6", args: list(3, 5, 7), want: 22},
	{text: "add b32 $r0 $r4 0x12345678", args: list(5), want: 0x1234567d},
	{text: "add b32 $r0 $r4 0x5", args: list(5), want: 10},
	{text: "add b32 $r0 $r4 $r5", args: list(5, 6), want: 11},
	{text: "sub b32 $r0 $r4 $r5", args: list(5, 6), want: uint32(0xffffffff)},
	{text: "subr b32 $r0 $r4 $r5", args: list(5, 6), want: 1},
	{text: "sub b32 $r0 $r4 0x7", args: list(5), want: uint32(0xfffffffe)},
	{text: "subr b32 $r0 $r4 0x7", args: list(5), want: 2},
	{text: "mul $r0 u32 $r4 u32 0x12345678", args: list(5), want: uint32(0x12345678 * 5 & 0xffffffff)},
	{text: "mul $r0 s32 $r4 s32 $r5", args: list(-5, 7), want: uint32(0xffffffdd)},
	{text: "mul $r0 s32 $r4 s32 0x7", args: list(-5), want: uint32(0xffffffdd)},
	{text: "and b32 $r0 $r4 0x12345678", args: list(0x00ff00ff), want: 0x00340078},
	{text: "and b32 $r0 $r4 $r5", args: list(12, 10), want: 8},
	{text: "or b32 $r0 $r4 $r5", args: list(12, 10), want: 14},
	{text: "xor b32 $r0 $r4 $r5", args: list(12, 10), want: 6},
	{text: "mov2 b32 $r0 $r4 $r5", args: list(12, 10), want: 10},
	{text: "and b32 $r0 $r4 0xa", args: list(12), want: 8},
	{text: "or b32 $r0 $r4 0xa", args: list(12), want: 14},
	{text: "xor b32 $r0 $r4 0xa", args: list(12), want: 6},
	{text: "mov2 b32 $r0 $r4 0xa", args: list(12), want: 10},
	{text: "add b32 $r0 (shl $r4 0x4) 0x12345678", args: list(1), want: 0x12345688},
	{text: "ins b32 $r0 $r4 0x408 $r5", args: list(0xab, 0x11111111), want: 0x11111b11},
	{text: "sad u32 $r0 $r4 $r5 $r6", args: list(3, 10, 100), want: 107},
	{text: "bfind u32 $r0 $r4", args: list(0x00800000), want: 23},
	{text: "popc $r0 $r4 not $r5", args: list(0xffff, 0xff), want: bits.OnesCount16(0xff00)},
	{text: "prmt b32 $r0 $r4 0x5410 $r5", args: list(0x33221100, 0x77665544), want: 0x55441100},
	{text: "shl b32 $r0 $r4 clamp 0x4", args: list(3), want: 48},
	{text: "shr s32 $r0 $r4 clamp 0x4", args: list(-48), want: uint32(0xfffffffd)},
	{text: "set $p0 0x1 lt s32 $r4 $r5\nselp b32 $r0 $r4 $r5 $p0", args: list(-3, 4), want: uint32(0xfffffffd)},
	{text: "set $p0 0x1 gt s32 $r4 0x2\nselp b32 $r0 $r4 $r5 $p0", args: list(-3, 4), want: 4},
	{text: "min high s32 $r11 $c $r5 $r7\nmin low s32 $r10 $r4 $r6 $c\nmov b32 $r0 $r10\nmov b32 $r1 $r11",
		args: list(int64(-5), int64(7)), want: uint64(math.MaxUint64 - 4)},
	{text: "max high u32 $r12 $c $r6 $r9\nmax med u32 $r11 $c $r5 $r8 $c\nmax low u32 $r10 $r4 $r7 $c\nmov b32 $r0 $r10\nmov b32 $r1 $r11",
		args: list(1, 9, 2, 3, 4, 2), want: uint64(9<<32 | 1)}, // numbers of 96 bits

	// moves, conversions and predicates
	{text: "mov b32 $r0 -0x5", want: uint32(0xfffffffb)},
	{text: "mov b32 $r0 0x3f800000", want: float32(1)},
	{text: "mov b32 $r0 $r5", args: list(1, 2), want: 2},
	{text: "mov b32 $r0 $ntidx", threads: 40, want: 40},
	{text: "selp b32 $r0 $r4 $r5 not 0x1", args: list(1, 2), want: 2},
	{text: "set $p0 0x1 eq u32 $r20 0x1\nset $p1 0x1 gt u32 $r20 0x1\nset b32 $r0 not $p0 and not $p1", threads: 4,
		want: func(i int) uint64 { return []uint64{0xffffffff, 0, 0, 0}[i] }},
	{text: "set $p0 0x1 eq u32 $r20 0x1\nset $p1 0x1 gt u32 $r20 0x1\nset $p2 0x1 $p0 or not $p1\nselp b32 $r0 $r20 0x9 $p2", threads: 4,
		want: func(i int) uint64 { return []uint64{0, 1, 9, 9}[i] }},
	{text: "cvt rn f16 $r0 f32 $r4", args: list(1.5), want: 0x3e00},
	{text: "cvt rn f32 $r0 f64 $r4d", args: list(wide(1.5)), want: float32(1.5)},
	{text: "cvt rmi f16 $r0 f16 $r4 0x0", args: list(0x3e00), want: 0x3c00},
	{text: "cvt rpi f32 $r0 f32 $r4", args: list(1.5), want: float32(2)},
	{text: "cvt sat rpi f32 $r0 f32 $r4", args: list(1.5), want: float32(1)},
	{text: "cvt sat f32 $r0 f32 $r4", args: list(1.5), want: float32(1)},
	{text: "cvt rzi f64 $r0d f64 $r4d", args: list(wide(-1.5)), want: wide(-1)},
	{text: "cvt f32 $r0 f16 $r4 0x1", args: list(uint32(0xbc000000)), want: float32(-1)},
	{text: "cvt f64 $r0d f32 $r4", args: list(1.5), want: wide(1.5)},
	{text: "cvt rni s32 $r0 f16 0x0 $r4", args: list(0xc500), want: uint32(0xfffffffb)},
	{text: "cvt rpi s32 $r0 f32 $r4", args: list(1.25), want: 2},
	{text: "cvt rzi u64 $r0d f64 $r4d", args: list(wide(1e10)), want: uint64(1e10)},
	{text: "cvt rn f32 $r0 u8 0x1 $r4", args: list(0x1200), want: float32(0x12)},
	{text: "cvt s32 $r0 s8 0x1 $r4", args: list(0x8000), want: uint32(0xffffff80)},
	{text: "cvt rn f32 $r0 s16 0x1 $r4", args: list(uint32(0xfffe0000)), want: float32(-2)},
	{text: "cvt rn f32 $r0 s32 $r4", args: list(-7), want: float32(-7)},
	{text: "cvt rn f64 $r0d s64 $r4d", args: list(int64(-1 << 40)), want: wide(-(1 << 40))},
	{text: "cvt u32 $r0 u16 0x1 $r4", args: list(0x12340000), want: 0x1234},
	{text: "cvt s32 $r0 neg s32 $r4", args: list(2), want: uint32(0xfffffffe)},
	{text: "cvt s32 $r0 s16 0x0 $r4", args: list(0xfffe), want: uint32(0xfffffffe)},

	// votes and barriers
	{text: "set $p0 0x1 lt u32 $r20 0x5\nvote all $r0 $p1 $p0\nset b32 $r1 $p1 and 0x1", threads: 32, want: uint64(0x1f)},
	{text: "set $p0 0x1 lt u32 $r20 0x5\nvote any $r0 $p1 $p0\nset b32 $r1 $p1 and 0x1", threads: 32, want: uint64(0xffffffff_0000001f)},
	{text: "set $p0 0x1 lt u32 $r20 0x5\nvote uni $r0 $p1 not $p0\nset b32 $r1 $p1 and 0x1", threads: 32, want: uint64(0xffffffe0)},
	{text: "st b32 s[0x20] $r20\nbar popc 0x1 0x0 0x2 0x0 0x1\nld b32 $r0 s[0x20]", threads: 64, want: 63},
	{text: "set $p0 0x1 lt u32 $r20 0x20\n$p0 bra first\nbar popc 0x1 0x0 0x3 0x0 0x1\nld b32 $r0 s[0x20]\nbra end\nfirst:\nst b32 s[0x20] $r20\nbar arrive 0x1 0x0 0x3 0x0 0x1\nend:",
		threads: 64, want: func(i int) uint64 { return uint64(i / 32 * 31) }},

	// memory
	{text: "st b32 wb g[$r2d+0x8] $r4\nexch b32 $r0 g[$r2d+0x8] $r5\nld b32 $r1 ca g[$r2d+0x8]", args: list(7, 9), want: uint64(9<<32 | 7)},
	{text: "st b64 wb g[$r2d+0x8] $r4d\nexch b64 $r10d g[$r2d+0x8] $r6d\nld b64 $r12d ca g[$r2d+0x8]\nmov b32 $r0 $r10\nmov b32 $r1 $r13",
		args: list(int64(5), int64(6<<32)), want: uint64(6<<32 | 5)},
	{text: "st b32 wb g[$r2d+0x8] $r4\nld add f32 $r0 g[$r2d+0x8] $r5\nld b32 $r1 ca g[$r2d+0x8]",
		args: list(1.0, 2.0), want: uint64(math.Float32bits(3))<<32 | uint64(math.Float32bits(1))},
	{text: "st b32 wb g[$r2d+0x8] $r4\nld xor u32 $r0 g[$r2d+0x8] $r5\nld b32 $r1 ca g[$r2d+0x8]", args: list(7, 9), want: uint64(14<<32 | 7)},
	{text: "st b32 wb g[$r2d+0x8] $r4\nld max s32 $r0 g[$r2d+0x8] $r5\nld b32 $r1 ca g[$r2d+0x8]", args: list(-7, 9), want: uint64(9<<32 | 0xfffffff9)},
	{text: "st b32 wb g[$r2d+0x8] $r4\ncas b32 $r0 g[$r2d+0x8] $r4 $r5\nld b32 $r1 ca g[$r2d+0x8]", args: list(7, 9), want: uint64(9<<32 | 7)},
	{text: "st b64 wb g[$r2d+0x8] $r4d\ncas b64 $r10d g[$r2d+0x8] $r4d $r6d\nld b64 $r0d ca g[$r2d+0x8]", args: list(int64(7), int64(9)), want: uint64(9)},
	{text: "red add f32 g[$r2d+0x8] $r4\nld b32 $r0 ca g[$r2d+0x8]", args: list(1.5), threads: 1, want: float32(1.5)},
	{text: "add u64 g[$r2d+0x8] $r4d\nadd u64 g[$r2d+0x8] $r4d\nld b64 $r0d ca g[$r2d+0x8]", args: list(int64(1<<33 | 1<<31)), want: uint64(1<<34 | 1<<32)},
	{text: "red min s32 g[$r2d+0x8] $r4\nld b32 $r0 ca g[$r2d+0x8]", args: list(-4), want: uint32(0xfffffffc)},
	{text: "red add u32 g[$r2d+0x8] $r20\nld b32 $r0 ca g[$r2d+0x8]", threads: 32, want: 31 * 32 / 2},
	{text: "st b32 wb l[0x10] $r20\nld b32 $r0 ca l[0x10]", threads: 40, want: func(i int) uint64 { return uint64(i) }},
	{text: "st b64 wb l[0x10] $r4d\nld b64 $r0d ca l[0x10]", args: list(int64(1<<40 + 5)), want: uint64(1<<40 + 5)},
	{text: "mov b32 $r10 0x20\nst b32 wb l[$r10+0x8] $r4\nld b32 $r0 ca l[$r10+0x8]", args: list(5), want: 5},
	{text: "mov b32 $r10 0x20\nst b64 wb l[$r10+0x8] $r4d\nld b64 $r0d ca l[$r10+0x8]", args: list(int64(5)), want: 5},
	{text: "mov b32 $r10 0x20\nst b32 s[$r10+0x8] $r4\nld b32 $r0 s[$r10+0x8]", args: list(5), want: 5},
	{text: "mov b32 $r10 0x20\nst b64 s[$r10+0x8] $r4d\nld b64 $r0d s[$r10+0x8]", args: list(int64(1<<40 + 5)), want: uint64(1<<40 + 5)},
	{text: "st b32 wb g[$r2+0x8] $r4\nld b32 $r0 ca g[$r2+0x8]", args: list(5), want: 5},
	{text: "st b64 wb g[$r2+0x8] $r4d\nld b64 $r0d ca g[$r2+0x8]", args: list(int64(1<<40 + 5)), want: uint64(1<<40 + 5)},
	{text: "st b32 wb g[$r2d+0x8] $r4\nldu b32 $r0 g[$r2d+0x8]", args: list(5), want: 5},
	{text: "st b64 wb g[$r2d+0x8] $r4d\nld b64 $r0d ca g[$r2d+0x8]", args: list(int64(1<<40 + 5)), want: uint64(1<<40 + 5)},
	{text: "mov b32 $r10 0x8\nld b32 $r0 c0[$r10+0x4]", args: list(1, 5), want: 5},
	{text: "cctl iv 0x0 g[$r2d]\ncctl ivall 0x0 l[0x0]\nmembar sys\npmevent 0x1\nnop\nmov b32 $r0 $r4", args: list(5), want: 5},
	{text: "again:\nld lock b32 $p0 $r10 s[0x40]\n$p0 add b32 $r10 $r10 $r20\n$p0 st unlock b32 s[0x40] $r10\n(not $p0) bra again\nbar popc 0x1 0x0 0x0 0x0 0x1\nld b32 $r0 s[0x40]",
		threads: 64, want: 63 * 64 / 2},

	// control flow
	{text: "bra abs over\nmov b32 $r0 0x1\nover:\nmov b32 $r1 0x2", want: uint64(2 << 32)},
	{text: "call abs sub\nbra over\nsub:\nadd b32 $r0 $r0 0x5\nret\nover:\nadd b32 $r0 $r0 0x1", want: 6},
	{text: "call sub\nbra over\nsub:\nadd b32 $r0 $r0 0x5\nret\nover:\nadd b32 $r0 $r0 0x1", want: 6},
	{text: "preret over\nadd b32 $r0 $r0 0x5\nret\nover:\nadd b32 $r0 $r0 0x1", want: 6},
	{text: "prebrk out\nloop:\nprecont loop\nset $p0 0x1 ge u32 $r0 $r20\n$p0 brk\nadd b32 $r0 $r0 0x1\ncont\nout:", threads: 8,
		want: func(i int) uint64 { return uint64(i) }},
	{text: "joinat end\nset $p0 0x1 lt u32 $r20 0x3\n$p0 bra low\njoin mov b32 $r0 0x1\nlow:\njoin mov b32 $r0 0x2\nend:\nadd b32 $r0 $r0 0x10", threads: 8,
		want: func(i int) uint64 { return map[bool]uint64{true: 0x12, false: 0x11}[i < 3] }},
	{text: "mov b32 $r0 0x7\nset $p0 0x1 lt u32 $r20 0x3\n$p0 exit\nmov b32 $r0 0x8", threads: 8,
		want: func(i int) uint64 { return map[bool]uint64{true: 0, false: 8}[i < 3] }},

	// surfaces: number 0 is a row of 16 words
	{text: "mov b32 $r10 0x8\nsustb wb zero img[0x0] 1d $r10 b32 $r4\nsuldb b32 $r0 ca zero img[0x0] 1d $r10", args: list(5), want: 5},
	{text: "mov b32 $r10 0x2\nmov b32 $r11 0x8\nsustp wb zero img[0x0] 1d $r10 $r4:#:#:#\nsuldb b32 $r0 ca zero img[0x0] 1d $r11", args: list(5), want: 5},
}

// list is arguments. An untyped constant with a point is a float of 32 bits.
func list(args ...any) []any { return args }

// wide is a float of 64 bits.
type wide float64
