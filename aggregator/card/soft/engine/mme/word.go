package mme

// word is an instruction.
type word uint32

// Operations, bits 2:0.
const (
	opRegisters = iota // of two registers; which one is in bits 21:17
	opImmediate        // a + immediate
	opInsert           // bits of b replace bits of a
	opExtractA         // bits of b from bit a on
	opExtractB         // bits of b, shifted left by a
	opRead             // the last data of method a + immediate
	opUndefined
	opBranch
)

func (w word) operation() uint32   { return uint32(w) & 7 }
func (w word) route() uint32       { return uint32(w) >> 4 & 7 }
func (w word) ends() bool          { return w>>7&1 != 0 }
func (w word) destination() uint32 { return uint32(w) >> 8 & 7 }
func (w word) a() uint32           { return uint32(w) >> 11 & 7 }
func (w word) b() uint32           { return uint32(w) >> 14 & 7 }
func (w word) function() uint32    { return uint32(w) >> 17 & 0x1f }

// immediate is signed, in two's complement.
func (w word) immediate() uint32 { return uint32(int32(w) >> 14) }

// A field of b is size bits from bit from on; to is where it goes.
func (w word) from() uint32 { return uint32(w) >> 17 & 0x1f }
func (w word) size() uint32 { return uint32(w) >> 22 & 0x1f }
func (w word) to() uint32   { return uint32(w) >> 27 & 0x1f }

// Of branches.
func (w word) ifNotZero() bool { return w>>4&1 != 0 }
func (w word) annuls() bool    { return w>>5&1 != 0 }

// compute returns the result of an instruction, and false if it is not defined.
func (r *Run) compute(w word, shadow *[methodMask + 1]uint32) (uint32, bool) {
	a, b := r.Registers[w.a()], r.Registers[w.b()]
	field := uint32(1)<<w.size() - 1
	switch w.operation() {
	case opRegisters:
		return r.combine(w.function(), a, b)
	case opImmediate:
		return a + w.immediate(), true
	case opInsert:
		return a&^(field<<w.to()) | (b>>w.from()&field)<<w.to(), true
	case opExtractA:
		return (b >> (a & 31) & field) << w.to(), true
	case opExtractB:
		return (b >> w.from() & field) << (a & 31), true
	case opRead:
		return shadow[(a+w.immediate())&methodMask], true
	}
	return 0, false
}

// combine is an operation of two registers. Carry is clear after a borrow.
func (r *Run) combine(function, a, b uint32) (uint32, bool) {
	carry := uint64(0)
	if r.Carry {
		carry = 1
	}
	var sum uint64
	switch function {
	case 0:
		sum = uint64(a) + uint64(b)
	case 1:
		sum = uint64(a) + uint64(b) + carry
	case 2:
		sum = uint64(a) + uint64(^b) + 1
	case 3:
		sum = uint64(a) + uint64(^b) + carry
	case 8:
		return a ^ b, true
	case 9:
		return a | b, true
	case 10:
		return a & b, true
	case 11:
		return a &^ b, true
	case 12:
		return ^(a & b), true
	default:
		return 0, false
	}
	r.Carry = sum>>32 != 0
	return uint32(sum), true
}
