package fermi

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/compile"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

func init() {
	for op, f := range map[isa.Op]func(*inst){
		isa.IAdd:    func(x *inst) { x.add(x.u32(0), x.u32(1)) },
		isa.IShlAdd: func(x *inst) { x.add(x.b.Shl(x.u32(0), x.b.And(x.u32(2), x.b.Const(31))), x.u32(1)) },
		isa.IMul:    func(x *inst) { x.setInt(x.product()) },
		isa.IMad:    func(x *inst) { x.add(x.product(), x.u32(2)) },
		isa.ISad: func(x *inst) {
			p, q := x.u32(0), x.u32(1)
			d := x.b.Select(x.b.Compare(x.order("lt"), p, q), x.b.Sub(q, p), x.b.Sub(p, q))
			x.set(x.b.Add(d, x.u32(2)))
		},
		isa.IMinMax: (*inst).minMax,
		isa.ISet:    func(x *inst) { x.setTruth(x.icompare()) },
		isa.ISetP:   func(x *inst) { x.setTruths(x.icompare()) },
		isa.ISlct: func(x *inst) {
			c := x.compare(x.u32(2), x.b.Const(0))
			x.set(x.b.Select(c, x.u32(0), x.u32(1)))
		},
		isa.Selp: func(x *inst) { x.set(x.b.Select(x.pred(3), x.u32(0), x.u32(1))) },
		isa.Mov: func(x *inst) {
			if x.Mod[isa.Lanes] != 15 {
				x.b.Refuse("some lanes of a quad")
				return
			}
			x.set(x.u32(1))
		},
		isa.PSet:  func(x *inst) { x.setTruth(x.psets()) },
		isa.PSetP: func(x *inst) { x.setTruths(x.psets()) },
		isa.Nop:   func(*inst) {}, isa.PMEvent: func(*inst) {}, isa.CacheCtl: func(*inst) {},
		isa.MemBar:  func(x *inst) { x.b.Fence(x.Mod[isa.Level] != 0) },
		isa.VoteAll: func(x *inst) { x.vote(func(yes, all value) value { return x.b.Compare("eq", yes, all) }) },
		isa.VoteAny: func(x *inst) { x.vote(func(yes, _ value) value { return x.b.Compare("ne", yes, x.b.Const(0)) }) },
		isa.VoteUni: func(x *inst) {
			x.vote(func(yes, all value) value {
				return x.b.One(x.b.Compare("eq", yes, x.b.Const(0)), x.b.Compare("eq", yes, all))
			})
		},
	} {
		meanings[op] = f
	}
}

// add adds or subtracts. A difference is the sum with the inverted value and a carry of one, so the carry
// flag is set if nothing was borrowed.
func (x *inst) add(p, q value) {
	b, carry, mode := x.b, x.b.False(), x.Mod[isa.Sum]
	var sum, out value
	if mode != isa.SumAdd && !x.has(isa.UseCC) && mode != isa.SumPlusOne {
		if mode == isa.SumSubR {
			p, q = q, p
		}
		sum, out = b.Sub(p, q), b.Compare("uge", p, q)
		overflow := b.Compare("slt", b.And(b.Xor(p, sum), b.Xor(p, q)), b.Const(0))
		if mode == isa.SumSubR {
			x.result(sum, b.Not(q), out, overflow)
		} else {
			x.result(sum, p, out, overflow)
		}
		return
	}
	switch mode {
	case isa.SumSub:
		q, carry = b.Not(q), b.True()
	case isa.SumSubR:
		p, carry = b.Not(p), b.True()
	case isa.SumPlusOne:
		carry = b.True()
	}
	if x.has(isa.UseCC) {
		carry = b.Flag(compile.Carry)
	}
	sum, out = b.AddCarry(p, q, carry)
	overflow := b.Compare("slt", b.And(b.Xor(p, sum), b.Xor(q, sum)), b.Const(0))
	x.result(sum, p, out, overflow)
}

// result writes a sum whose first operand is p, clamped if the form says so.
func (x *inst) result(sum, p, carry, overflow value) {
	if x.has(isa.Sat) {
		sum = x.b.Select(overflow, x.b.Add(x.b.Const(1<<31-1), x.b.Shr(p, x.b.Const(31))), sum)
	}
	x.set(sum)
	x.setFlags(sum, carry, overflow)
}

func (x *inst) product() value {
	if x.has(isa.High) {
		return x.b.MulHigh(x.u32(0), x.u32(1), x.has(isa.SignedA), x.has(isa.SignedB))
	}
	return x.b.Mul(x.u32(0), x.u32(1))
}

// order is a condition of IR, for integers of the form's type.
func (x *inst) order(cond string) string {
	if x.has(isa.Signed) {
		return "s" + cond
	}
	return "u" + cond
}

// compare compares by the condition of the form.
func (x *inst) compare(p, q value) value {
	switch x.Mod[isa.Cmp] & 7 {
	case 0:
		return x.b.False()
	case 2:
		return x.b.Compare("eq", p, q)
	case 5:
		return x.b.Compare("ne", p, q)
	case 7:
		return x.b.True()
	}
	return x.b.Compare(x.order(map[uint8]string{1: "lt", 3: "le", 4: "gt", 6: "ge"}[x.Mod[isa.Cmp]&7]), p, q)
}

// icompare compares. With the condition code it compares the upper halves of wide integers whose lower
// halves were subtracted before.
func (x *inst) icompare() value {
	p, q := x.u32(0), x.u32(1)
	if !x.has(isa.UseCC) {
		return x.compare(p, q)
	}
	b, cond := x.b, x.Mod[isa.Cmp]
	less, same := b.Compare(x.order("lt"), p, q), b.Compare("eq", p, q)
	carry, zero := b.Flag(compile.Carry), b.Flag(compile.Zero)
	more := b.Opposite(b.One(less, same))
	holds := b.False()
	if cond&1 != 0 {
		holds = b.One(holds, b.One(less, b.Both(same, b.Opposite(carry))))
	}
	if cond&2 != 0 {
		holds = b.One(holds, b.Both(same, b.Both(carry, zero)))
	}
	if cond&4 != 0 {
		holds = b.One(holds, b.One(more, b.Both(same, b.Both(carry, b.Opposite(zero)))))
	}
	return holds
}

// minMax also works on wide integers, from their highest words down. A word leaves in the flags whether
// the numbers are equal so far (zero), and whether the first is less (sign).
func (x *inst) minMax() {
	b, p, q := x.b, x.u32(0), x.u32(1)
	less, same := b.Compare(x.order("lt"), p, q), b.Compare("eq", p, q)
	if c := x.Mod[isa.Chain]; c != isa.ChainNone && c != isa.ChainTop {
		zero, sign := b.Flag(compile.Zero), b.Flag(compile.Sign)
		less = b.One(b.Both(zero, b.Compare("ult", p, q)), b.Both(b.Opposite(zero), sign))
		same = b.Both(zero, same)
	}
	smaller := x.pred(3)
	x.set(b.Select(b.Differ(less, smaller), q, p))
	if x.has(isa.SetCC) {
		b.SetFlag(compile.Zero, same)
		b.SetFlag(compile.Sign, less)
	}
}

// logic combines booleans.
func (x *inst) logic(op uint8, p, q value) value {
	switch op {
	case isa.CombineAnd:
		return x.b.Both(p, q)
	case isa.CombineOr:
		return x.b.One(p, q)
	}
	return x.b.Differ(p, q)
}

func (x *inst) psets() value { return x.logic(x.Mod[isa.Combine2], x.pred(0), x.pred(1)) }

// setTruth writes a truth as all ones or 1.0.
func (x *inst) setTruth(v value) {
	yes := uint32(1<<32 - 1)
	if x.has(isa.FloatOut) {
		yes = 0x3f800000
	}
	x.set(x.b.Select(x.logic(x.Mod[isa.Combine], v, x.pred(3)), x.b.Const(yes), x.b.Const(0)))
}

// setTruths writes a truth and its opposite, each combined, to two predicates.
func (x *inst) setTruths(v value) {
	p, op := x.pred(3), x.Mod[isa.Combine]
	yes, no := x.logic(op, v, p), x.logic(op, x.b.Opposite(v), p)
	x.b.SetPred(x.PDst[0], yes)
	x.b.SetPred(x.PDst[1], no)
}

// vote writes the verdict, and the lanes that said yes.
func (x *inst) vote(verdict func(yes, all value) value) {
	yes := x.b.Ballot(x.pred(0))
	v := verdict(yes, x.b.Ballot(x.b.True()))
	x.b.SetPred(x.PDst[0], v)
	x.set(yes)
}
