package interp

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/umbra-gpu/umbra/tests/smtest"
)

// pattern draws bits that lie near the edges of formats more often than chance would.
func pattern(t *rapid.T, name string) uint64 {
	v := rapid.Uint64().Draw(t, name)
	switch rapid.IntRange(0, 5).Draw(t, name+" kind") {
	case 0:
		v = uint64(int64(v) >> rapid.IntRange(32, 63).Draw(t, name+" shift"))
	case 1:
		edges := []uint64{0, 0x80000000, 1, 0x7fffff, 0x800000, 0x7f7fffff, 0x7f800000, 0x7fc00000, 0x3f800000, 0xffffffff, 0x7fffffff, 0xff800000}
		v = rapid.SampledFrom(edges).Draw(t, name+" edge")
	case 2: // a float near one
		v = v&0x80ffffff | 0x3f000000
	}
	return v
}

// compute runs a program that has its words from $r4 on as arguments: $r4d, $r6d, $r8d.
func compute(t require.TestingT, text string, args ...uint32) uint32 {
	code := assemble(t, "ld b64 $r4d c0[0x8]\nld b64 $r6d c0[0x10]\nld b64 $r8d c0[0x18]\n"+text+smtest.Store)
	return results(t, code, 1, args...)[0]
}

var modes = map[string]big.RoundingMode{"rn": big.ToNearestEven, "rm": big.ToNegativeInf, "rp": big.ToPositiveInf, "rz": big.ToZero}

// round32 rounds an exact value to a float of 32 bits, with denormals.
func round32(v *big.Float, mode big.RoundingMode) float32 {
	if v.Sign() == 0 {
		return 0
	}
	exp := v.MantExp(nil)
	prec := 24
	if exp < -125 {
		prec = 24 - (-125 - exp)
	}
	r := new(big.Float).SetMode(mode).SetPrec(uint(max(prec, 1)))
	if prec < 1 { // below half of the last place, or at it
		unit := new(big.Float).SetMantExp(big.NewFloat(float64(v.Sign())), -149)
		half := new(big.Float).SetMantExp(unit, -1)
		up := mode == big.ToPositiveInf && v.Sign() > 0 || mode == big.ToNegativeInf && v.Sign() < 0 ||
			mode == big.ToNearestEven && new(big.Float).Abs(v).Cmp(half.Abs(half)) > 0
		if !up {
			return 0
		}
		f, _ := unit.Float32()
		return f
	}
	r.Set(v)
	if r.MantExp(nil) > 128 {
		towards := mode == big.ToZero || mode == big.ToNegativeInf && v.Sign() > 0 || mode == big.ToPositiveInf && v.Sign() < 0
		if towards {
			return float32(v.Sign()) * math.MaxFloat32
		}
		return float32(math.Inf(v.Sign()))
	}
	f, _ := r.Float32()
	return f
}

func exact(b uint32) *big.Float { return big.NewFloat(float64(math.Float32frombits(b))) }

func finite(vs ...uint32) bool {
	for _, v := range vs {
		if v&0x7f800000 == 0x7f800000 {
			return false
		}
	}
	return true
}

// Sums, products and their fusion round once, in each mode, also to denormals.
func TestFloatsRoundOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := uint32(pattern(t, "a")), uint32(pattern(t, "b")), uint32(pattern(t, "c"))
		if !finite(a, b, c) {
			t.Skip()
		}
		mode := rapid.SampledFrom([]string{"rn", "rm", "rp", "rz"}).Draw(t, "mode")
		wide := func() *big.Float { return new(big.Float).SetPrec(2000) }
		product := wide().Mul(exact(a), exact(b))
		for text, want := range map[string]*big.Float{
			"add %s f32 $r0 $r4 $r6":         wide().Add(exact(a), exact(c)),
			"mul %s f32 $r0 $r4 $r5":         product,
			"fma %s f32 $r0 $r4 $r5 $r6":     wide().Add(product, exact(c)),
			"fma %s f32 $r0 neg $r4 $r5 $r6": wide().Sub(exact(c), product),
		} {
			got := math.Float32frombits(compute(t, fmt.Sprintf(text, mode), a, b, c))
			require.Equal(t, round32(want, modes[mode]), got+0, "%s of %#x %#x %#x", fmt.Sprintf(text, mode), a, b, c)
		}
	})
}

func TestRules(t *testing.T) {
	const (
		one, two, inf, nan, negZero, denormal = 0x3f800000, 0x40000000, 0x7f800000, 0x7fc12345, 0x80000000, 0x00000123
	)
	for _, c := range []struct {
		text    string
		a, b, c uint32
		want    uint32
	}{
		{"add rn f32 $r0 $r4 $r5", nan, one, 0, nanBits},
		{"add rn f32 $r0 $r4 neg $r5", inf, inf, 0, nanBits},
		{"add rm f32 $r0 $r4 neg $r5", one, one, 0, negZero},
		{"add ftz rn f32 $r0 $r4 $r5", denormal, negZero, 0, 0},
		{"add rn f32 $r0 $r4 $r5", denormal, 0, 0, denormal},
		{"add sat rn f32 $r0 $r4 $r5", two, one, 0, one},
		{"add sat rn f32 $r0 $r4 $r5", nan, one, 0, 0},
		{"mul fmz rn f32 $r0 $r4 $r5", inf, 0, 0, 0},
		{"mul mul2 rn f32 $r0 $r4 $r5", one, one, 0, two},
		{"min f32 $r0 $r4 $r5", nan, one, 0, one},
		{"max f32 $r0 $r4 $r5", negZero, 0, 0, 0},
		{"min f32 $r0 abs $r4 neg $r5", 0xc0000000, 0xbf800000, 0, one},
		{"set b32 $r0 lt f32 $r4 $r5", nan, one, 0, 0},
		{"set f32 $r0 ltu f32 $r4 $r5", nan, one, 0, one},
		{"set $p1 $p2 ge f32 $r4 $r5\nselp b32 $r0 $r4 $r5 $p2", one, two, 0, one},
		{"slct b32 $r0 $r4 $r5 lt f32 $r6", 5, 6, 0xbf800000, 5},
		{"rcp f32 $r0 $r4", 0, 0, 0, inf},
		{"rcp f32 $r0 $r4", denormal | negZero, 0, 0, 0xff800000},
		{"rsqrt f32 $r0 $r4", 0x40800000, 0, 0, 0x3f000000},
		{"ex2 f32 $r0 neg $r4", one, 0, 0, 0x3f000000},
		{"cvt rn f16 $r0 f32 $r4", 0x477ff000, 0, 0, 0x7c00},
		{"cvt rz f16 $r0 f32 $r4", 0x477ff000, 0, 0, 0x7bff},
		{"cvt rn f16 $r0 f32 $r4", 0x33000001, 0, 0, 1},
		{"cvt f32 $r0 neg f16 $r4 0x1", 0x3c000000, 0, 0, 0xbf800000},
		{"cvt rzi s32 $r0 f32 $r4", 0xc0600000, 0, 0, 0xfffffffd},
		{"cvt rni u32 $r0 f32 $r4", 0x40200000, 0, 0, 2},
		{"cvt rni u32 $r0 f32 $r4", 0xc0200000, 0, 0, 0},
		{"cvt rzi s32 $r0 f32 $r4", 0x4f000000, 0, 0, 0x7fffffff},
		{"cvt rzi s32 $r0 f32 $r4", nan, 0, 0, 0},
		{"cvt rmi f32 $r0 f32 $r4", 0xbf000000, 0, 0, 0xbf800000},
		{"cvt rn f32 $r0 s8 0x2 $r4", 0x00ff0000, 0, 0, 0xbf800000},
		{"cvt rp f32 $r0 u64 $r4d", 1, 0x80000000, 0, 0x5f000001},
		{"cvt sat u8 $r0 s32 $r4", 0xffffffff, 0, 0, 0},
		{"cvt s16 $r0 u8 0x1 $r4", 0xfe00, 0, 0, 0xfe},
		{"cvt s32 $r0 abs s32 $r4", 0xfffffff0, 0, 0, 16},
		{"bfind shiftamt u32 $r0 $r4", 0x00010000, 0, 0, 15},
		{"bfind shiftamt s32 $r0 $r4", 0xffffffff, 0, 0, 0xffffffff},
		{"prmt b32 $r0 $r4 0x8f13 $r5", 0x03020180, 0x87060504, 0, 0x00ff0103 | 0xff<<24},
		{"prmt f4e b32 $r0 $r4 0x3 $r5", 0x03020100, 0x07060504, 0, 0x06050403},
		{"prmt b4e b32 $r0 $r4 0x1 $r5", 0x03020100, 0x07060504, 0, 0x06070001},
		{"prmt rc8 b32 $r0 $r4 0x2 $r5", 0x03020100, 0, 0, 0x02020202},
		{"prmt ecl b32 $r0 $r4 0x2 $r5", 0x03020100, 0, 0, 0x03020202},
		{"prmt ecr b32 $r0 $r4 0x1 $r5", 0x03020100, 0, 0, 0x01010100},
		{"prmt rc16 b32 $r0 $r4 0x1 $r5", 0x03020100, 0, 0, 0x03020302},
	} {
		require.Equal(t, c.want, compute(t, c.text, c.a, c.b, c.c), c.text)
	}
}

// Doubles in other modes lie beside the nearest one, on the right side.
func TestDoublesRoundOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n string) float64 { return rapid.Float64Range(-1e3, 1e3).Draw(t, n) }
		a, b, c := draw("a"), draw("b"), draw("c")
		name := rapid.SampledFrom([]string{"rn", "rm", "rp", "rz"}).Draw(t, "mode")
		v := new(big.Float).SetPrec(4000).Mul(big.NewFloat(a), big.NewFloat(b))
		v.Add(v, big.NewFloat(c))
		want, _ := new(big.Float).SetMode(modes[name]).SetPrec(53).Set(v).Float64()
		var args []uint32
		for _, f := range []float64{a, b, c} {
			args = append(args, uint32(math.Float64bits(f)), uint32(math.Float64bits(f)>>32))
		}
		code := fmt.Sprintf("fma %s f64 $r10d $r4d $r6d $r8d\nmov b32 $r0 $r", name)
		got := uint64(compute(t, code+"10", args...)) | uint64(compute(t, code+"11", args...))<<32
		require.Equal(t, want+0, math.Float64frombits(got)+0)
	})
}

// Integers are what Go makes of the same bits.
func TestIntegers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x, y := pattern(t, "x"), pattern(t, "y")
		a, b, c, d := uint32(x), uint32(x>>32), uint32(y), uint32(y>>32)
		pos, length := rapid.Uint32Range(0, 40).Draw(t, "pos"), rapid.Uint32Range(0, 40).Draw(t, "len")
		field := func(v int64) uint32 {
			var out uint32
			for i := range length { // bit by bit, with the value extended at both ends
				if i < 32 && v>>min(pos+i, 32)&1 != 0 {
					out |= 1 << i
				}
			}
			return out
		}
		mul := func(x, y int64) uint32 { return uint32(uint64(x*y) >> 32) }
		flag := map[bool]uint32{true: 0xffffffff}
		for text, want := range map[string]uint32{
			"add b32 $r10 $c $r4 $r6\nadd b32 $r0 $r5 $r7 $c":                                            uint32((x + y) >> 32),
			"sub b32 $r10 $c $r4 $r6\nsub b32 $r0 $r5 $r7 $c":                                            uint32((x - y) >> 32),
			"subr b32 $r10 $c $r4 $r6\nsubr b32 $r0 $r5 $r7 $c":                                          uint32((y - x) >> 32),
			"sub b32 0x0 $c $r4 $r6\nset b32 $r0 lt s32 $r5 $r7 $c":                                      flag[int64(x) < int64(y)],
			"sub b32 0x0 $c $r4 $r6\nset b32 $r0 gt u32 $r5 $r7 $c":                                      flag[x > y],
			"sub b32 0x0 $c $r4 $r6\nset b32 $r0 eq s32 $r5 $r7 $c":                                      flag[x == y],
			"max high s32 $r10 $c $r5 $r7\nmax low s32 $r0 $r4 $r6 $c":                                   uint32(max(int64(x), int64(y))),
			"min high u32 $r10 $c $r5 $r7\nmin low u32 $r0 $r4 $r6 $c":                                   uint32(min(x, y)),
			"mul high $r0 s32 $r4 s32 $r6":                                                               mul(int64(int32(a)), int64(int32(c))),
			"mul high $r0 u32 $r4 s32 $r6":                                                               mul(int64(a), int64(int32(c))),
			"mul high $r0 u32 $r4 u32 $r6":                                                               uint32(uint64(a) * uint64(c) >> 32),
			"sub $r0 (mul u32 $r4 u32 $r6) $r5":                                                          a*c - b,
			"sub b32 $r0 (shl $r4 0x7) $r5":                                                              a<<7 - b,
			"sad s32 $r0 $r4 $r6 $r5":                                                                    uint32(max(int64(int32(a))-int64(int32(c)), int64(int32(c))-int64(int32(a)))) + b,
			"shr s32 $r0 $r4 clamp $r6":                                                                  uint32(int32(a) >> min(c, 32)),
			"shl b32 $r0 $r4 wrap $r6":                                                                   a << (c & 31),
			"shl b32 $r0 $r4 clamp $r6":                                                                  uint32(uint64(a) << min(c, 32)),
			"shr rev u32 $r0 $r4 clamp 0x3":                                                              bits.Reverse32(a) >> 3,
			"xor b32 $r0 $r4 not $r6":                                                                    ^(a ^ c),
			"popc $r0 $r4 not $r6":                                                                       uint32(bits.OnesCount32(a &^ c)),
			"bfind u32 $r0 $r4":                                                                          uint32(bits.Len32(a)) - 1,
			"bfind s32 $r0 $r4":                                                                          uint32(bits.Len32(uint32(int32(a)>>31)^a)) - 1,
			fmt.Sprintf("mov b32 $r10 %#x\next u32 $r0 $r4 $r10", length<<8|pos):                         field(int64(a)),
			fmt.Sprintf("mov b32 $r10 %#x\next rev u32 $r0 $r4 $r10", length<<8|pos):                     field(int64(bits.Reverse32(a))),
			fmt.Sprintf("mov b32 $r10 %#x\nins b32 $r0 $r4 $r10 $r6", length<<8|pos):                     insertBits(a, c, pos, length),
			fmt.Sprintf("prmt b32 $r0 $r4 %#x $r6", 0x7250):                                              permuted(a, c),
			"add sat b32 $r0 $r4 $r6":                                                                    uint32(min(max(int64(int32(a))+int64(int32(c)), math.MinInt32), math.MaxInt32)),
			"slct b32 $r0 $r4 $r5 ge s32 $r6":                                                            map[bool]uint32{true: a, false: b}[int32(c) >= 0],
			"set $p0 0x1 lt u32 $r4 $r6\nset $p1 0x1 eq u32 $r5 $r7 or not $p0\nset b32 $r0 $p1 and 0x1": flag[b == d || a >= c],
		} {
			require.Equal(t, want, compute(t, text, a, b, c, d), "%s of %#x %#x", text, x, y)
		}
	})
}

func insertBits(v, into, pos, length uint32) uint32 {
	for i := range length {
		if pos+i < 32 && i < 32 {
			into = into&^(1<<(pos+i)) | v>>i&1<<(pos+i)
		}
	}
	return into
}

// permuted picks bytes 0, 5, 2 and 7 of a pair of registers.
func permuted(a, c uint32) uint32 {
	return a&0xff | c>>8&0xff<<8 | a>>16&0xff<<16 | c>>24<<24
}
