package interp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/tests/smtest"
)

// A histogram in shared memory, as compilers make it for GF100: lanes try for the lock of a word,
// and those that failed try again.
func TestSharedLocks(t *testing.T) {
	got := results(t, assemble(t, `
	mov b32 $r1 $tidx
	shl b32 $r2 $r1 clamp 0x2
	st b32 s[$r2] $r63
	bar popc 0x1 0x0 0x0 0x0 0x1
	and b32 $r3 $r1 0x3
	shl b32 $r3 $r3 clamp 0x2
	joinat end
again:
	ld lock b32 $p0 $r4 s[$r3]
	$p0 add b32 $r4 $r4 0x1
	$p0 st unlock b32 s[$r3] $r4
	(not $p0) bra again
	join nop
end:
	bar popc 0x1 0x0 0x0 0x0 0x1
	ld b32 $r0 s[$r2]`+smtest.Store), 96)
	for i, v := range got {
		require.EqualValues(t, []int{24, 0}[min(i/4, 1)], v)
	}
}

// An exiting lane drops its locks, and a barrier does not wait for it.
func TestExitDropsWhatItHolds(t *testing.T) {
	got := results(t, assemble(t, `
	mov b32 $r1 $tidx
	set $p1 0x1 lt u32 $r1 0x20
	$p1 ld lock b32 $p0 $r4 s[0x0]
	$p1 exit
	bar popc 0x1 0x0 0x0 0x0 0x1
	ld lock b32 $p0 $r4 s[0x0]
	set b32 $r0 $p0 and 0x1`+smtest.Store), 64)
	require.EqualValues(t, 0xffffffff, got[32])
	require.Zero(t, got[33])
}

func TestBarriers(t *testing.T) {
	for program, want := range map[string]func(i int) uint32{
		"bar popc 0x1 $r0 0x0 0x0 $p0":                         func(int) uint32 { return 50 },
		"bar and $p1 0x0 0x0 0x0 $p0\nset b32 $r0 $p1 and 0x1": func(int) uint32 { return 0 },
		"bar or $p1 0x0 0x0 0x0 $p0\nset b32 $r0 $p1 and 0x1":  func(int) uint32 { return 0xffffffff },
		"bar popc 0x1 $r0 0x1 0x40 not $p0":                    func(i int) uint32 { return 64 - 50 },
		"vote all $r0 $p1 $p0":                                 func(i int) uint32 { return []uint32{0xffffffff, 1<<18 - 1}[i/32] },
		"vote any 0x0 $p1 $p0\nset b32 $r0 $p1 and 0x1":        func(int) uint32 { return 0xffffffff },
		"vote uni 0x0 $p1 $p0\nset b32 $r0 $p1 and 0x1":        func(i int) uint32 { return []uint32{0xffffffff, 0}[i/32] },
		"mov b32 $r0 $lanemask_gt":                             func(i int) uint32 { return ^uint32(0) << (i % 32) << 1 },
		"mov b32 $r0 $lanemask_lt":                             func(i int) uint32 { return 1<<(i%32) - 1 },
		"mov b32 $r0 $lanemask_le":                             func(i int) uint32 { return 1<<(i%32+1) - 1 },
		"mov b32 $r0 $lanemask_ge":                             func(i int) uint32 { return ^uint32(0) << (i % 32) },
		"mov b32 $r0 $tid":                                     func(i int) uint32 { return uint32(i) },
		"mov b32 $r1 $tidx\nst b32 wb l[-0x40] $r1\nst b32 wb l[0x0] 0x0\nld b32 $r0 ca l[-0x40]": func(i int) uint32 { return uint32(i) },
		"mov b32 $r1 0xff000000\nst u8 wb g[$r1+0x5] $r1\nld b32 $r0 ca l[0x4]":                   func(int) uint32 { return 0 },
	} {
		got := results(t, assemble(t, "mov b32 $r1 $tidx\nset $p0 0x1 lt u32 $r1 0x32\n"+program+smtest.Store), 64)
		for i, v := range got {
			require.Equal(t, want(i), v, "%s, thread %d", program, i)
		}
	}
}

// Warps that wait at different barriers never meet.
func TestDeadlock(t *testing.T) {
	_, fault := run(t, assemble(t, `
	mov b32 $r1 $tidx
	shr u32 $r1 $r1 clamp 0x5
	bar popc 0x1 0x0 $r1 0x0 0x1
	exit`), 64)
	require.NotNil(t, fault)
	require.Equal(t, Deadlock, fault.Cause)
}

// Threads add up in one word; each sees another sum.
func TestAtomics(t *testing.T) {
	const start = "ld b64 $r2d c0[0x0]\nmov b32 $r1 $tidx\nadd b32 $r1 $r1 0x1\n"
	for program, want := range map[string]uint32{
		"red add u32 g[$r2d+0x800] $r1":                                   64 * 65 / 2,
		"red max s32 g[$r2d+0x800] $r1":                                   64,
		"sub b32 $r1 0x0 $r1\nred min s32 g[$r2d+0x800] $r1":              0xffffffc0,
		"sub b32 $r1 0x0 $r1\nred max u32 g[$r2d+0x800] $r1":              0xffffffff,
		"red or u32 g[$r2d+0x800] $r1":                                    127,
		"mov b32 $r1 0x9\nred inc u32 g[$r2d+0x800] $r1":                  64 % 10,
		"mov b32 $r1 0x9\nred dec u32 g[$r2d+0x800] $r1":                  6,
		"mov b32 $r1 0x3f800000\nred add f32 g[$r2d+0x800] $r1":           0x42800000,
		"sub b32 $r4 $r1 0x1\ncas b32 $r5 g[$r2d+0x800] $r4 $r1":          64,
		"exch b32 $r5 g[$r2d+0x800] $r1":                                  64,
		"ld add u32 $r5 g[$r2d+0x804] $r1\nred max u32 g[$r2d+0x800] $r5": 63 * 64 / 2,
	} {
		m, fault := run(t, assemble(t, start+program+"\nexit"), 64)
		require.Nil(t, fault, program)
		require.Equal(t, want, m.Word(0x200), program)
	}
}
