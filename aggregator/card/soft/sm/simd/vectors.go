//go:build amd64 && goexperiment.simd

package simd

import "simd/archsimd"

func init() {
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		sets["AVX2"], fast = avx2, avx2
	}
	if archsimd.X86.AVX512() {
		sets["AVX-512"], fast = avx512, avx512
	}
}

// The operations on vectors of both lengths are one text: TestVectorRows makes rows_avx2.go from
// rows_avx512.go. What the lengths do not share is here.
type (
	vec512  = archsimd.Uint32x16
	vec256  = archsimd.Uint32x8
	mask512 = archsimd.Mask32x16
	mask256 = archsimd.Mask32x8
)

const (
	lanes512 = 16
	lanes256 = 8
)

// maskOf512 returns the mask of a vector's lanes, which are those from i on.
func maskOf512(lanes uint32, i int) mask512 { return archsimd.Mask32x16FromBits(uint16(lanes >> i)) }

// maskOf256 compares bits: AVX2 has no registers for masks.
func maskOf256(lanes uint32, i int) mask256 {
	bit := load256(&laneBits, i)
	return all256(lanes).And(bit).Equal(bit)
}

func fromUint512(v vec512) archsimd.Float32x16 { return v.ConvertToFloat32() }

// fromUint256 converts both halves of a value, which is exact, and rounds once, when it adds them.
func fromUint256(v vec256) archsimd.Float32x8 {
	high := v.ShiftAllRight(16).AsInt32x8().ConvertToFloat32()
	low := v.And(all256(1<<16 - 1)).AsInt32x8().ConvertToFloat32()
	return high.Mul(archsimd.BroadcastFloat32x8(1 << 16)).Add(low)
}

// laneNumbers and laneBits have each lane's number, and its bit in a mask.
var laneNumbers, laneBits = func() (numbers, bits row) {
	for i := range numbers {
		numbers[i], bits[i] = uint32(i), 1<<i
	}
	return numbers, bits
}()
