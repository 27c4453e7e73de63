//go:build amd64 && goexperiment.simd

package simd

import "simd/archsimd"

func init() {
	if archsimd.X86.AVX2() && archsimd.X86.FMA() {
		fast, vectors = avx2, "AVX2"
	}
}

type (
	vec256  = archsimd.Uint32x8
	mask256 = archsimd.Mask32x8
)

const lanes256 = 8

// maskOf256 returns the mask of a vector's lanes, which are those from i on. It compares bits: AVX2 has no
// registers for masks.
func maskOf256(lanes uint32, i int) mask256 {
	bit := load256(&laneBits, i)
	return all256(lanes).And(bit).Equal(bit)
}

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
