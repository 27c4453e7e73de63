package isa

import "fmt"

// Encode is the inverse of Decode: it returns the word of an instruction at pc. Bits that the
// decoder ignores are zero.
func Encode(in *Inst, pc uint32) (uint64, error) {
	f := in.Form
	w := f.Value
	if f.opaque {
		return in.Word, nil
	}
	if !f.noGuard {
		w |= uint64(in.Guard.Pred&7)<<10 | bit(in.Guard.Not)<<13
	}
	if in.Join {
		if !f.joins() {
			return 0, fmt.Errorf("%q takes no join flag", f.Name())
		}
		w |= joinBit
	}
	fields, err := in.write(f.slots, pc)
	if err != nil {
		return 0, fmt.Errorf("%q: %w", f.Name(), err)
	}
	return w | fields, nil
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

func (in *Inst) write(slots []slot, pc uint32) (w uint64, err error) {
	for i := range slots {
		s := &slots[i]
		var part uint64
		switch s.kind {
		case modifies:
			if s.fixed {
				break
			}
			part = s.field.put(uint64(s.mod.number(in.Mod[s.mod.mod])))
			if fixed := s.field.mask() & in.Form.Mask; part&fixed != in.Form.Value&fixed {
				err = fmt.Errorf("the row fixes the %s", s.mod.mod)
			}
		case operates, minOrMax:
			part, err = in.writeOperand(s, pc)
		case group:
			part, err = in.write(s.inner, pc)
		}
		if err != nil {
			return 0, err
		}
		w |= part
	}
	return w, nil
}

func (in *Inst) writeOperand(s *slot, pc uint32) (uint64, error) {
	o := &s.operand
	switch o.role {
	case toPDst0, toPDst1:
		return o.field.put(uint64(in.PDst[o.role-toPDst0])), nil
	case toTarget:
		n := int64(in.Target)
		if o.shape == aTarget {
			n = int64(int32(in.Target - pc - uint32(in.Form.size())))
		}
		if !o.field.fits(n, o.shift, o.signed) {
			return 0, fmt.Errorf("target %#x is out of reach", in.Target)
		}
		return o.field.put(uint64(n >> o.shift)), nil
	}
	v := in.place(o.role)
	if o.shape == aRegister && o.role == toSrc2 && o.field[0].pos == 14 && v.Reg != in.Dst.Reg {
		return 0, fmt.Errorf("the last input must be the result's register")
	}
	w, err := o.put(v, in.Src[2].Kind == Const)
	for _, sign := range []struct {
		set bool
		bit uint64
	}{{v.Neg, s.neg}, {v.Abs, s.abs}, {v.Not, s.not}} {
		if sign.set {
			w |= sign.bit
		}
	}
	return w, err
}

func (f *Form) size() uint8 {
	if f.short() {
		return 4
	}
	return 8
}

// put is the inverse of get. In forms with three inputs, a third operand in c[] moves the second.
func (o *operand) put(v *Operand, moved bool) (uint64, error) {
	switch {
	case o.shape == aSecond || o.shape == aSecond3 || o.shape == aThird:
		return o.putAny(v, moved)
	case o.shape == aNumber && v.Kind == Imm || o.shape == aHandle && v.Kind == o.kind:
		return o.putNumber(v.Value)
	case o.shape == aMemory && v.Kind == Memory && v.Space == o.space:
		w, err := o.putNumber(v.Value)
		switch {
		case o.base != 0:
			w |= uint64(v.Reg) << o.base
		case v.Reg != Zero:
			err = errOperand(v)
		}
		switch {
		case o.wide > 0:
			w |= uint64(v.Count-1) << o.wide
		case v.Count != max(o.count, 1):
			err = errOperand(v)
		}
		return w | o.bank.put(uint64(v.Bank)), err
	case o.shape == aChoice && v.Kind == Imm:
		w, err := o.putNumber(v.Value)
		return w | 1<<o.wide, err
	case o.shape == aChoice && v.Kind == Reg:
		return uint64(v.Reg) << o.base, nil
	case o.shape == aShort && v.Kind == Reg:
		return o.field.put(uint64(v.Reg)), nil
	case o.shape == aShort && v.Kind == Const:
		for sel, bank := range shortBanks {
			if sel > 0 && bank == v.Bank && v.Value&3 == 0 && v.Value < 256 {
				return o.field.put(uint64(v.Value>>2)) | o.bank.put(uint64(sel)), nil
			}
		}
	case o.shape == anImage && v.Kind == Surface:
		if v.Count == 1 {
			return uint64(v.Reg) << 26, nil
		}
		w, err := o.putNumber(v.Value)
		return w | 1<<46, err
	case o.shape == aResult && v.Kind == Reg:
		return o.field.put(uint64(v.Reg)) | o.bank.put(uint64(v.Mask)), nil
	case o.shape == theFlags && v.Kind == Flags:
		return 0, nil
	case o.shape == aVector && v.Kind == Reg:
		return o.field.put(uint64(v.Reg)) | o.bank.put(uint64(v.Count-1)), nil
	case o.shape == aRegister && v.Kind == Reg,
		o.shape == aPredicate && v.Kind == Pred, o.shape == aSpecial && v.Kind == Special:
		return o.field.put(uint64(v.Reg)), nil
	}
	return 0, errOperand(v)
}

func errOperand(v *Operand) error { return fmt.Errorf("operand of kind %d does not fit", v.Kind) }

func (o *operand) putNumber(n int64) (uint64, error) {
	if !o.field.fits(n, o.shift, o.signed) {
		return 0, fmt.Errorf("number %#x does not fit", n)
	}
	return o.field.put(uint64(n >> o.shift)), nil
}

// putAny encodes an operand that may be a register, c[] or an immediate.
func (o *operand) putAny(v *Operand, moved bool) (uint64, error) {
	third := o.shape == aThird
	switch {
	case v.Kind == Const && third:
		return o.putConst(v, 2)
	case v.Kind == Const:
		return o.putConst(v, 1)
	case v.Kind == Imm && !third:
		w, err := o.putNumber(v.Value)
		return w | 3<<46, err
	case v.Kind == Reg && (third || moved && o.shape == aSecond3):
		return uint64(v.Reg) << 49, nil
	case v.Kind == Reg:
		return uint64(v.Reg) << 26, nil
	}
	return 0, errOperand(v)
}

func (o *operand) putConst(v *Operand, mode uint64) (uint64, error) {
	if v.Bank > 31 || v.Value&3 != 0 || v.Value < 0 || v.Value > 0xfffc {
		return 0, fmt.Errorf("c%d[%#x] does not fit", v.Bank, v.Value)
	}
	return mode<<46 | cBank.put(uint64(v.Bank)) | cOffset.put(uint64(v.Value>>2)), nil
}
