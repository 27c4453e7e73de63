package simd

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
)

// sets are the operations that this processor can run, by name.
func sets() map[string]rowOps { return map[string]rowOps{"plain": plain, vectors: fast} }

// All sets of operations give the same, for all edges against all others.
func TestSetsAgree(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	const n = len(edges)
	for first := 0; first < n*n*n; first += len(row{}) {
		var rows [4]row
		for i := range interp.Lanes {
			k := first + i
			rows[1][i], rows[2][i], rows[3][i] = edges[k%n], edges[k/n%n], edges[k/n/n%n]
		}
		for range 4 {
			p := params{plus: r.Uint32(), shift: r.Uint32(), ftz: r.IntN(2) == 0, sat: r.IntN(2) == 0}
			for i := range p.and {
				p.and[i], p.xor[i] = allLanes>>r.IntN(2), r.Uint32()&signBit
			}
			word := r.Uint32()
			want := results(plain, rows, p, word)
			for name, ops := range sets() {
				require.Equal(t, want, results(ops, rows, p, word), "%s: %x %+v %x", name, rows, p, word)
			}
		}
	}
}

// results are what the operations give on some rows.
func results(ops rowOps, rows [4]row, p params, word uint32) (all []any) {
	d, a, b, c := &rows[0], &rows[1], &rows[2], &rows[3]
	carry, overflow := ops.addCarry(d, a, b, &p, word)
	zero, sign := ops.zeroSign(a)
	less, equal := ops.order(a, b, word&signBit)
	lessFloat, equalFloat, greater := ops.orderFloat(a, b, &p)
	all = append(all, *d, carry, overflow, zero, sign, less, equal, lessFloat, equalFloat, greater)
	ops.choose(d, a, b, word)
	all = append(all, *d)
	for _, op := range []rowOp{
		ops.add, ops.shiftAdd, ops.mul, ops.mulAdd, ops.and, ops.or, ops.xor, ops.second, ops.shl, ops.shr, ops.shrSigned,
		ops.minInt, ops.maxInt, ops.minUint, ops.maxUint, ops.fromInt, ops.fromUint,
		ops.addFloat, ops.mulFloat, ops.fma, ops.minFloat, ops.maxFloat, ops.rcp,
	} {
		op(d, a, b, c, &p)
		all = append(all, *d)
	}
	return all
}

// Products just beside half of the last place of a sum: 53 bits do not tell the side. The sums are of
// all sizes, denormals too.
func TestFmaRoundsOnce(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for name, ops := range sets() {
		for range 2000 {
			var a, b, c, d row
			for i := range d {
				addend := math.Float32frombits(value(r))
				unit := max(math.Ilogb(float64(addend)), -126) - 23
				k := float64(r.IntN(1<<12)) * 0x1p-23
				scale := max(-126, unit/2)
				a[i] = math.Float32bits(float32(math.Ldexp(1+k, scale)))
				b[i] = math.Float32bits(float32(math.Ldexp(1-k, unit-1-scale)))
				b[i] ^= r.Uint32() & signBit
				c[i] = math.Float32bits(addend)
			}
			ops.fma(&d, &a, &b, &c, &params{and: [3]uint32{allLanes, allLanes, allLanes}})
			for i := range d {
				v, w, x := math.Float32frombits(a[i]), math.Float32frombits(b[i]), math.Float32frombits(c[i])
				want := float32(interp.AddOdd(float64(v)*float64(w), float64(x)))
				if want != want {
					want = math.Float32frombits(nanBits)
				}
				require.Equal(t, math.Float32bits(want), d[i], "%s: %x * %x + %x", name, v, w, x)
			}
		}
	}
}
