package interp

import (
	"math"
	"math/big"
)

// fma64 returns a*b+c, rounded once.
func fma64(a, b, c float64, mode uint8) float64 {
	r := math.FMA(a, b, c)
	if mode == nearest || r != r || math.IsInf(a, 0) || math.IsInf(b, 0) || math.IsInf(c, 0) {
		return r
	}
	// Enough bits for the smallest product beside the largest addend.
	exact := new(big.Float).SetPrec(5000).Mul(big.NewFloat(a), big.NewFloat(b))
	exact.Add(exact, big.NewFloat(c))
	if exact.Sign() == 0 {
		return zeroSum(r, a*b, c, mode)
	}
	return directed(r, exact, mode)
}

// mul64 returns a*b: adding minus zero changes no product, not even a zero.
func mul64(a, b float64, mode uint8) float64 { return fma64(a, b, math.Copysign(0, -1), mode) }

// directed moves the nearest value of an exact one to where the mode rounds it.
func directed(r float64, exact *big.Float, mode uint8) float64 {
	over := sign(r) // r compared with the exact value
	if !math.IsInf(r, 0) {
		over = big.NewFloat(r).Cmp(exact)
	}
	switch {
	case over > 0 && (mode == down || mode == toZero && exact.Sign() > 0):
		return math.Nextafter(r, math.Inf(-1))
	case over < 0 && (mode == up || mode == toZero && exact.Sign() < 0):
		return math.Nextafter(r, math.Inf(1))
	}
	return r
}

// fromInt rounds an integer of 64 bits, signed or not, to 24 or 53 bits.
func fromInt(v uint64, signed bool, mode uint8, single bool) float64 {
	exact := new(big.Float).SetPrec(64).SetUint64(v)
	if signed {
		exact.SetInt64(int64(v))
	}
	if single {
		f, _ := exact.Float32()
		r := float64(f)
		switch over := big.NewFloat(r).Cmp(exact); {
		case over > 0 && (mode == down || mode == toZero && r > 0):
			return float64(math.Nextafter32(f, float32(math.Inf(-1))))
		case over < 0 && (mode == up || mode == toZero && r < 0):
			return float64(math.Nextafter32(f, float32(math.Inf(1))))
		}
		return r
	}
	r, _ := exact.Float64()
	return directed(r, exact, mode)
}
