package simd

import "github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"

func init() {
	for op, order := range map[isa.Op]func(*Executor, *operation) (orders, bool){
		isa.ISet: intOrder, isa.ISetP: intOrder, isa.FSet: floatOrder, isa.FSetP: floatOrder, isa.DSet: doubleOrder, isa.DSetP: doubleOrder,
	} {
		set := op == isa.ISet || op == isa.FSet || op == isa.DSet
		plans[op] = func(o *operation) bool {
			o.signs(0, 1)
			if op == isa.DSet || op == isa.DSetP {
				o.wide()
			}
			o.run = func(x *Executor, o *operation) bool {
				v, ok := order(x, o)
				if ok {
					x.setTruth(o, v.holds(o.Mod[isa.Cmp]), set)
				}
				return ok
			}
			return true
		}
	}
	for op, set := range map[isa.Op]bool{isa.PSet: true, isa.PSetP: false} {
		plans[op] = func(o *operation) bool {
			o.run = func(x *Executor, o *operation) bool {
				x.setTruth(o, logic(o.Mod[isa.Combine2], x.truth(&o.Src[0]), x.truth(&o.Src[1])), set)
				return true
			}
			return true
		}
	}
	plans[isa.Selp] = func(o *operation) bool {
		o.run = func(x *Executor, o *operation) bool { return x.choose(o, x.truth(&o.Src[3])) }
		return true
	}
	plans[isa.ISlct] = func(o *operation) bool {
		o.run = runIntSelect
		return true
	}
	plans[isa.FSlct] = func(o *operation) bool {
		o.params.and[0] = allLanes // the value that is compared is the operation's first
		if o.Src[2].Abs {
			o.params.and[0] = ^uint32(signBit)
		}
		o.params.xor[0] = uint32(bit(o.Src[2].Neg)) << 31
		o.params.ftz = o.flushes()
		o.run = runFloatSelect
		return true
	}
}

// orders are the lanes in which the first value is less than, equal to, or greater than the second.
// It is neither if one is NaN.
type orders struct{ less, equal, greater uint32 }

// holds returns the lanes whose order a condition includes.
func (o orders) holds(condition uint8) uint32 {
	var lanes uint32
	for i, v := range [...]uint32{o.less, o.equal, o.greater, ^(o.less | o.equal | o.greater)} {
		lanes |= v & -uint32(condition>>i&1)
	}
	return lanes
}

// intOrder compares. With the condition code it compares the upper halves of wide integers.
func intOrder(x *Executor, o *operation) (v orders, ok bool) {
	a, b := x.source(&o.src[0]), x.source(&o.src[1])
	if a == nil || b == nil {
		return v, false
	}
	v.less, v.equal = fast.order(a, b, uint32(o.Mod[isa.Signed])<<31)
	v.greater = ^(v.less | v.equal)
	if f := &x.w.Flags; o.Mod[isa.UseCC] != 0 {
		v.less |= v.equal &^ f.Carry
		v.greater |= v.equal & f.Carry &^ f.Zero
		v.equal &= f.Carry & f.Zero
	}
	return v, true
}

func floatOrder(x *Executor, o *operation) (v orders, ok bool) {
	a, b := x.source(&o.src[0]), x.source(&o.src[1])
	if a == nil || b == nil {
		return v, false
	}
	v.less, v.equal, v.greater = fast.orderFloat(a, b, &o.params)
	return v, true
}

func doubleOrder(x *Executor, o *operation) (v orders, ok bool) {
	a, b := x.doubles(o, 0), x.doubles(o, 1)
	if a.low == nil || b.low == nil {
		return v, false
	}
	for i := range a.low {
		s, t := a.at(i), b.at(i)
		v.less |= bit(s < t) << i
		v.equal |= bit(s == t) << i
		v.greater |= bit(s > t) << i
	}
	return v, true
}

func logic(op uint8, a, b uint32) uint32 {
	switch op {
	case isa.CombineAnd:
		return a & b
	case isa.CombineOr:
		return a | b
	}
	return a ^ b
}

// setTruth joins a truth with the predicate source, and writes it as a value or, with its opposite,
// to predicates.
func (x *Executor) setTruth(o *operation, truth uint32, value bool) {
	with, op := x.truth(&o.Src[3]), o.Mod[isa.Combine]
	if !value {
		no := logic(op, ^truth, with)
		x.setPred(o.PDst[0], logic(op, truth, with))
		x.setPred(o.PDst[1], no)
		return
	}
	yes := allLanes
	if o.Mod[isa.FloatOut] != 0 {
		yes = oneBits
	}
	truth = logic(op, truth, with)
	d := x.result(o.dst, 0)
	for i := range d {
		d[i] = yes & -(truth >> i & 1)
	}
	x.merge(o.dst, d)
}

// choose writes the first source to the lanes of first, and the second to others.
func (x *Executor) choose(o *operation, first uint32) bool {
	a, b := x.source(&o.src[0]), x.source(&o.src[1])
	if a == nil || b == nil {
		return false
	}
	d := x.result(o.dst, 0)
	fast.choose(d, a, b, first)
	x.merge(o.dst, d)
	return true
}

var zeros row

func runIntSelect(x *Executor, o *operation) bool {
	c := x.source(&o.src[2])
	if c == nil {
		return false
	}
	less, equal := fast.order(c, &zeros, uint32(o.Mod[isa.Signed])<<31)
	return x.choose(o, orders{less, equal, ^(less | equal)}.holds(o.Mod[isa.Cmp]))
}

func runFloatSelect(x *Executor, o *operation) bool {
	c := x.source(&o.src[2])
	if c == nil {
		return false
	}
	less, equal, greater := fast.orderFloat(c, &zeros, &o.params)
	return x.choose(o, orders{less, equal, greater}.holds(o.Mod[isa.Cmp]))
}
