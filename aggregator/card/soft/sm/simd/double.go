package simd

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	for op, f := range map[isa.Op]func(a, b, c float64) float64{
		isa.DAdd: func(a, b, _ float64) float64 { return a + b },
		isa.DMul: func(a, b, _ float64) float64 { return a * b },
		isa.DFma: func(a, b, c float64) float64 { return math.FMA(a, b, c) }, // an instruction, if called so
	} {
		plans[op] = func(o *operation) bool {
			if o.Mod[isa.Round] != isa.RN {
				o.slow = costSlow
				return false
			}
			o.wide()
			o.signs(0, 1, 2)
			if o.Mod[isa.NegProduct] != 0 {
				o.params.xor[0] ^= signBit
			}
			o.run = func(x *Executor, o *operation) bool { return x.double(o, f) }
			return true
		}
	}
}

// wide resolves the upper halves of the sources.
func (o *operation) wide() {
	o.high, o.cost = new([3]source), costPage
	for i := range o.high {
		o.high[i] = newSource(&o.Src[i], 1)
	}
}

// doubles are the rows of a source of 64 bits, with its signs.
type doubles struct {
	low, high *row
	and, xor  uint32
}

func (d *doubles) at(lane int) uint64 {
	return uint64(d.low[lane]) | uint64(d.high[lane]&d.and^d.xor)<<32
}

// doubles resolves a source; low is nil if it cannot be had.
func (x *Executor) doubles(o *operation, n int) doubles {
	d := doubles{x.source(&o.src[n]), x.source(&o.high[n]), o.params.and[n], o.params.xor[n]}
	if d.high == nil {
		d.low = nil
	}
	return d
}

func (x *Executor) double(o *operation, f func(a, b, c float64) float64) bool {
	a, b, c := x.doubles(o, 0), x.doubles(o, 1), x.doubles(o, 2)
	if a.low == nil || b.low == nil || c.low == nil {
		return false
	}
	low, high := &x.scratch[0], &x.scratch[1]
	for i := range low {
		v := f(math.Float64frombits(a.at(i)), math.Float64frombits(b.at(i)), math.Float64frombits(c.at(i)))
		setDouble(low, high, i, v)
	}
	x.mergeWide(o.dst, low, high)
	return true
}

func setDouble(low, high *row, i int, v float64) {
	bits := uint64(0xfff8000000000000)
	if v == v {
		bits = math.Float64bits(v)
	}
	low[i], high[i] = uint32(bits), uint32(bits>>32)
}

// mergeWide writes a result of 64 bits to the lanes.
func (x *Executor) mergeWide(reg uint8, low, high *row) {
	if reg != isa.Zero {
		x.merge(reg, low)
		x.merge(reg+1, high)
	}
}
