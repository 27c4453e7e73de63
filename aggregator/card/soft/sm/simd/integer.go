package simd

import (
	"math/bits"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/interp"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	plans[isa.IAdd], plans[isa.IShlAdd], plans[isa.IMad] = planSum, planSum, planSum
	plans[isa.IMul] = func(o *operation) bool {
		if high(o) {
			return o.Mod[isa.SetCC] == 0 && o.lanewise(product(o))
		}
		return o.withFlags(fast.mul)
	}
	plans[isa.Logical] = func(o *operation) bool {
		for i := range 2 {
			if o.Src[i].Not {
				o.params.xor[i] = allLanes
			}
		}
		return o.withFlags([...]rowOp{isa.LogicAnd: fast.and, isa.LogicOr: fast.or, isa.LogicXor: fast.xor, isa.LogicB: fast.second}[o.Mod[isa.Logic]])
	}
	plans[isa.Shl] = func(o *operation) bool { return o.shift(fast.shl) }
	plans[isa.Shr] = func(o *operation) bool {
		if o.Mod[isa.Signed] != 0 {
			return o.Mod[isa.Reverse] == 0 && o.shift(fast.shrSigned)
		}
		return o.Mod[isa.Reverse] == 0 && o.shift(fast.shr)
	}
	plans[isa.IMinMax] = func(o *operation) bool {
		smaller, known := o.constantTruth()
		ops := [2][2]rowOp{{fast.maxUint, fast.minUint}, {fast.maxInt, fast.minInt}}
		return known && o.Mod[isa.Chain] == isa.ChainNone && o.Mod[isa.SetCC] == 0 && o.two(ops[o.Mod[isa.Signed]][smaller])
	}
	plans[isa.Mov] = func(o *operation) bool {
		if o.Mod[isa.Lanes] == 15 {
			return o.two(fast.second)
		}
		return false
	}
	plans[isa.ISad] = func(o *operation) bool {
		top := uint32(o.Mod[isa.Signed]) << 31
		return o.lanewise(func(a, b, c uint32) uint32 {
			if a^top < b^top {
				return b - a + c
			}
			return a - b + c
		})
	}
	plans[isa.Insert] = func(o *operation) bool { return o.lanewise(insert) }
	plans[isa.Extract] = func(o *operation) bool {
		if o.Mod[isa.SetCC] != 0 || o.Mod[isa.Reverse] != 0 {
			return false
		}
		if v := &o.Src[1]; v.Kind == isa.Imm && o.field(0, uint32(v.Value&0xff), uint32(v.Value>>8&0xff), o.Mod[isa.Signed] != 0) {
			return true
		}
		if o.Mod[isa.Signed] != 0 {
			return o.lanewise(extractSigned)
		}
		return o.lanewise(extract)
	}
	plans[isa.PopCount] = func(o *operation) bool {
		m, n := inversion(&o.Src[0]), inversion(&o.Src[1])
		return o.lanewise(func(a, b, _ uint32) uint32 { return uint32(bits.OnesCount32((a ^ m) & (b ^ n))) })
	}
	plans[isa.FindBit] = func(o *operation) bool {
		n, signed, amount := inversion(&o.Src[1]), o.Mod[isa.Signed] != 0, o.Mod[isa.Amount] != 0
		return o.lanewise(func(_, v, _ uint32) uint32 {
			if v ^= n; signed {
				v ^= uint32(int32(v) >> 31)
			}
			if amount && v != 0 {
				return uint32(bits.LeadingZeros32(v))
			}
			return uint32(bits.Len32(v)) - 1
		})
	}
	plans[isa.Permute] = func(o *operation) bool { return o.Mod[isa.Select] == 0 && o.lanewise(permute) }
}

// two runs an operation on the rows of two sources, three on those of three.
func (o *operation) two(op rowOp) bool   { o.run, o.rows = runTwo, op; return true }
func (o *operation) three(op rowOp) bool { o.run, o.rows = runThree, op; return true }

func runTwo(x *Executor, o *operation) bool {
	a, b := x.source(&o.src[0]), x.source(&o.src[1])
	if a == nil || b == nil {
		return false
	}
	d := x.result(o.dst, 0)
	o.rows(d, a, b, b, &o.params)
	x.merge(o.dst, d)
	return true
}

func runThree(x *Executor, o *operation) bool {
	a, b, c := x.source(&o.src[0]), x.source(&o.src[1]), x.source(&o.src[2])
	if a == nil || b == nil || c == nil {
		return false
	}
	d := x.result(o.dst, 0)
	o.rows(d, a, b, c, &o.params)
	x.merge(o.dst, d)
	return true
}

// lanewise computes each lane with a function of the bits of the sources.
func (o *operation) lanewise(f func(a, b, c uint32) uint32) bool {
	o.run, o.lane, o.cost = runLanes, f, costPage
	return true
}

func runLanes(x *Executor, o *operation) bool {
	a, b, c := x.source(&o.src[0]), x.source(&o.src[1]), x.source(&o.src[2])
	if a == nil || b == nil || c == nil {
		return false
	}
	d := x.result(o.dst, 0)
	for i := range d {
		d[i] = o.lane(a[i], b[i], c[i])
	}
	x.merge(o.dst, d)
	return true
}

// field plans to take bits of a source, and to extend them: with two shifts. It reports false for no
// bits, and for bits that are not there.
func (o *operation) field(source int, pos, length uint32, signed bool) bool {
	if length == 0 || pos+length > 32 {
		return false
	}
	var left, right row
	fill(&left, 32-pos-length)
	fill(&right, 32-length)
	down := fast.shr
	if signed {
		down = fast.shrSigned
	}
	o.cost = costRow
	o.run = func(x *Executor, o *operation) bool {
		a := x.source(&o.src[source])
		if a == nil {
			return false
		}
		d := x.result(o.dst, 0)
		fast.shl(d, a, &left, nil, &o.params)
		down(d, d, &right, nil, &o.params)
		x.merge(o.dst, d)
		return true
	}
	return true
}

// withFlags is two, and also writes the zero and sign flags if asked.
func (o *operation) withFlags(op rowOp) bool {
	o.two(op)
	if o.Mod[isa.SetCC] != 0 {
		o.run = runFlags
	}
	return true
}

func runFlags(x *Executor, o *operation) bool {
	a, b := x.source(&o.src[0]), x.source(&o.src[1])
	if a == nil || b == nil {
		return false
	}
	d := &x.scratch[0]
	o.rows(d, a, b, b, &o.params)
	x.merge(o.dst, d)
	x.setFlags(d, 0, 0)
	return true
}

func (x *Executor) setFlags(result *row, carry, overflow uint32) {
	f := &x.w.Flags
	zero, sign := fast.zeroSign(result)
	setLanes(&f.Zero, x.lanes, zero)
	setLanes(&f.Sign, x.lanes, sign)
	setLanes(&f.Carry, x.lanes, carry)
	setLanes(&f.Overflow, x.lanes, overflow)
}

// planSum serves sums of a source, a shifted source or a product, and another source. A difference
// is the sum with the inverted value and one.
func planSum(o *operation) bool {
	p := &o.params
	switch o.Mod[isa.Sum] {
	case isa.SumSub:
		p.xor[1], p.plus = allLanes, 1
	case isa.SumSubR:
		p.xor[0], p.plus = allLanes, 1
	case isa.SumPlusOne:
		p.plus = 1
	}
	if o.Mod[isa.Sat] != 0 || o.Op == isa.IMad && high(o) {
		return false
	}
	if o.Op == isa.IShlAdd {
		p.shift = uint32(o.Src[2].Value) & 31
	}
	if o.Mod[isa.SetCC] != 0 || o.Mod[isa.UseCC] != 0 {
		o.run = runSum
		return true
	}
	switch o.Op {
	case isa.IAdd:
		return o.two(fast.add)
	case isa.IShlAdd:
		return o.two(fast.shiftAdd)
	}
	return o.three(fast.mulAdd)
}

// runSum adds with the condition code.
func runSum(x *Executor, o *operation) bool {
	a, b := x.source(&o.src[0]), x.source(&o.src[1])
	if a == nil || b == nil {
		return false
	}
	switch first := &x.scratch[1]; o.Op {
	case isa.IMad:
		fast.mul(first, a, b, b, &o.params)
		if a, b = first, x.source(&o.src[2]); b == nil {
			return false
		}
	case isa.IShlAdd:
		for i := range first {
			first[i] = a[i] << (o.params.shift & 31)
		}
		a = first
	}
	carries := -o.params.plus
	if o.Mod[isa.UseCC] != 0 {
		carries = x.w.Flags.Carry
	}
	d := &x.scratch[0]
	carry, overflow := fast.addCarry(d, a, b, &o.params, carries)
	x.merge(o.dst, d)
	if o.Mod[isa.SetCC] != 0 {
		x.setFlags(d, carry, overflow)
	}
	return true
}

func high(o *operation) bool { return o.Mod[isa.High] != 0 }

// product computes upper halves of products.
func product(o *operation) func(a, b, c uint32) uint32 {
	widen := func(signed uint8) func(uint32) uint64 {
		if signed != 0 {
			return func(v uint32) uint64 { return uint64(int64(int32(v))) }
		}
		return func(v uint32) uint64 { return uint64(v) }
	}
	first, second := widen(o.Mod[isa.SignedA]), widen(o.Mod[isa.SignedB])
	return func(a, b, _ uint32) uint32 { return uint32(first(a) * second(b) >> 32) }
}

func inversion(v *isa.Operand) uint32 {
	if v.Not {
		return allLanes
	}
	return 0
}

// constantTruth returns the predicate source if it is the same in all lanes.
func (o *operation) constantTruth() (truth int, known bool) {
	v := &o.Src[3]
	return int(bit(!v.Not)), v.Reg == isa.True
}

// shift plans a shift: at most by 32, or modulo 32.
func (o *operation) shift(op rowOp) bool {
	if o.Mod[isa.Wrap] != 0 {
		o.params.and[1] = interp.Lanes - 1
	}
	return o.two(op)
}

func insert(a, b, c uint32) uint32 {
	pos, length := b&0xff, b>>8&0xff
	mask := (uint32(1)<<length - 1) << pos // a shift by 32 or more is zero
	return a<<pos&mask | c&^mask
}

func extract(a, b, _ uint32) uint32 {
	return a >> (b & 0xff) & (uint32(1)<<(b>>8&0xff) - 1)
}

func extractSigned(a, b, _ uint32) uint32 {
	pos, length := b&0xff, b>>8&0xff
	v := uint32(int32(a) >> pos)
	if length >= 32 {
		return v
	}
	if length == 0 {
		return 0
	}
	v &= 1<<length - 1
	return v | -(a>>min(pos+length-1, 31)&1)<<length
}

// permute picks four of eight bytes, or their signs.
func permute(a, b, c uint32) (out uint32) {
	bytes := uint64(a) | uint64(c)<<32
	for i := 0; i < 32; i += 8 {
		v := uint8(bytes >> (b & 7 * 8))
		if b&8 != 0 {
			v = uint8(int8(v) >> 7)
		}
		out |= uint32(v) << i
		b >>= 4
	}
	return out
}
