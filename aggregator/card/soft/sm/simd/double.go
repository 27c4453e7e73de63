package simd

import (
	"math"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	for op, run := range map[isa.Op]func(low, high *row, a, b, c *doubles){isa.DAdd: addDoubles, isa.DMul: mulDoubles, isa.DFma: fmaDoubles} {
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
			o.run = func(x *Executor, o *operation) bool { return x.double(o, run) }
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

func (d *doubles) at(lane int) float64 {
	return math.Float64frombits(uint64(d.low[lane&31]) | uint64(d.high[lane&31]&d.and^d.xor)<<32)
}

// doubles resolves a source; low is nil if it cannot be had.
func (x *Executor) doubles(o *operation, n int) doubles {
	d := doubles{x.source(&o.src[n]), x.source(&o.high[n]), o.params.and[n], o.params.xor[n]}
	if d.high == nil {
		d.low = nil
	}
	return d
}

func (x *Executor) double(o *operation, run func(low, high *row, a, b, c *doubles)) bool {
	a, b, c := x.doubles(o, 0), x.doubles(o, 1), x.doubles(o, 2)
	if a.low == nil || b.low == nil || c.low == nil {
		return false
	}
	low, high := &x.scratch[0], &x.scratch[1]
	run(low, high, &a, &b, &c)
	x.mergeWide(o.dst, low, high)
	return true
}

func addDoubles(low, high *row, a, b, _ *doubles) {
	for i := range low {
		setDouble(low, high, i, a.at(i)+b.at(i))
	}
}

func mulDoubles(low, high *row, a, b, _ *doubles) {
	for i := range low {
		setDouble(low, high, i, a.at(i)*b.at(i))
	}
}

func fmaDoubles(low, high *row, a, b, c *doubles) {
	for i := range low {
		setDouble(low, high, i, math.FMA(a.at(i), b.at(i), c.at(i)))
	}
}

func setDouble(low, high *row, i int, v float64) {
	bits := uint64(0xfff8000000000000)
	if v == v {
		bits = math.Float64bits(v)
	}
	low[i&31], high[i&31] = uint32(bits), uint32(bits>>32)
}

// mergeWide writes a result of 64 bits to the lanes.
func (x *Executor) mergeWide(reg uint8, low, high *row) {
	if reg != isa.Zero {
		x.merge(reg, low)
		x.merge(reg+1, high)
	}
}
