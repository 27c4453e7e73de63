package isa

// A role is the place of an operand in an Inst.
type role uint8

const (
	toDst role = iota
	toPDst0
	toPDst1
	toSrc0
	toSrc1
	toSrc2
	toSrc3
	toTarget
)

// A shape says how bits become an operand.
type shape uint8

const (
	aRegister shape = iota
	aSecond         // bits 47:46: register, c[], immediate
	aSecond3        // the same of forms with three inputs: "10" moves the register to src3's place
	aThird          // register, or c[] if bits 47:46 are "10"
	aNumber         // immediate
	aPredicate
	aSpecial
	aMemory
	aVector  // registers of a texture or surface operand
	aResult  // registers of a texture's result, with a mask
	aChoice  // a bit says whether it is a register or a number
	aShort   // register, or c0, c1 or c16 as two bits say
	anImage  // bit 46: number or register
	aHandle  // texture or sampler
	theFlags // all predicates and the condition code
	aTarget  // relative to the next instruction
	anAddress
)

// An operand is one way in which forms encode an input or output.
type operand struct {
	shape  shape
	role   role
	field  field // may be replaced in the row: "P@49"
	count  uint8 // registers; 0: as memory's width or the conversion's type says
	shift  uint8
	signed bool
	kind   Kind  // of handles
	space  Space // of memory
	base   uint8 // bit of memory's base register, 0 if there is none
	wide   int8  // bit that makes the base a pair, -1 if it never is; bit that chooses a number
	bank   field // of c[]
	vector func(w uint64) uint8
}

func reg(r role, pos, count uint8) operand {
	return operand{shape: aRegister, role: r, field: field{{pos, 6}}, count: count}
}

func second(s shape, imm operand, count uint8) operand {
	imm.shape, imm.role, imm.count, imm.field = s, toSrc1, count, field{{26, 20}}
	return imm
}

func num(r role, pos, width uint8, signed bool) operand {
	return operand{shape: aNumber, role: r, field: field{{pos, width}}, signed: signed}
}

func mem(r role, s Space, f field, signed bool, shift uint8, wide int8) operand {
	return operand{shape: aMemory, role: r, space: s, field: f, signed: signed, shift: shift, base: 20, wide: wide}
}

func pred(r role) operand { return operand{shape: aPredicate, role: r, field: field{{0, 3}}} }

func vector(r role, pos uint8, count func(uint64) uint8) operand {
	return operand{shape: aVector, role: r, field: field{{pos, 6}}, vector: count}
}

func short(r role, pos, selector uint8) operand {
	return operand{shape: aShort, role: r, field: field{{pos, 6}}, bank: field{{selector, 2}}, count: 1}
}

func shortMem(s Space, shift, count uint8) operand {
	o := mem(toSrc0, s, offset8, true, shift, -1)
	o.count = count
	return o
}

var (
	cBank    = field{{42, 4}, {26, 1}}
	cOffset  = field{{28, 14}} // in words
	asInt    = operand{signed: true}
	asFloat  = operand{shift: 12}
	asDouble = operand{shift: 44}
	offset32 = field{{26, 32}}
	offset24 = field{{26, 24}}
	offset8  = field{{8, 2}, {26, 6}}
	offset20 = field{{26, 17}, {55, 3}}
)

// operands by the names that rows use. A letter says which place: D the result, A, B and C the
// inputs, V a result's place that holds an input, E a result beside it, P predicates; then the
// type of an immediate (i, f, d, l), "3" for forms of three inputs, or the size (d, q, w).
var operands = map[string]operand{
	"D": reg(toDst, 14, 1), "Dd": reg(toDst, 14, 2), "Dt": reg(toDst, 14, 0), "Dw": reg(toDst, 14, 0),
	"E": reg(toDst, 43, 1), "Ed": reg(toDst, 43, 2),
	"A": reg(toSrc0, 20, 1), "Ad": reg(toSrc0, 20, 2),
	"V": reg(toSrc1, 14, 1), "Vd": reg(toSrc1, 14, 2), "Vw": reg(toSrc1, 14, 0),
	"V2": reg(toSrc2, 14, 1), "R": reg(toSrc1, 26, 1), "C": reg(toSrc2, 49, 1), "Cd": reg(toSrc2, 49, 2),
	"Bi": second(aSecond, asInt, 1), "Bf": second(aSecond, asFloat, 1), "Bd": second(aSecond, asDouble, 2), "Bl": second(aSecond, asInt, 2),
	"B3i": second(aSecond3, asInt, 1), "B3f": second(aSecond3, asFloat, 1), "B3d": second(aSecond3, asDouble, 2),
	"C3": {shape: aThird, role: toSrc2, count: 1}, "C3d": {shape: aThird, role: toSrc2, count: 2},
	"L": num(toSrc1, 26, 32, false), "N": num(toSrc1, 0, 0, false), "N2": num(toSrc2, 0, 0, false),
	"N0": num(toSrc0, 0, 0, false),
	"P":  pred(toSrc3), "PA": pred(toSrc0), "PB": pred(toSrc1), "PD": pred(toPDst0), "PE": pred(toPDst1),
	"BI": {shape: aChoice, role: toSrc0, field: field{{20, 4}}, base: 20, wide: 47},
	"BN": {shape: aChoice, role: toSrc1, field: field{{26, 12}}, base: 26, wide: 46},
	"SR": {shape: aSpecial, role: toSrc0, field: field{{26, 8}}}, "FD": {shape: theFlags, role: toDst}, "FS": {shape: theFlags, role: toSrc2},
	"G": mem(toSrc0, Global, offset32, true, 0, 58), "Gn": mem(toSrc0, Global, offset32, true, 0, -1),
	"Ga": mem(toSrc0, Global, offset20, true, 0, 58), "Gc": mem(toSrc0, Global, field{{28, 30}}, true, 2, 58),
	"S": mem(toSrc0, Shared, offset24, true, 0, -1), "M": mem(toSrc0, Local, offset24, true, 0, -1),
	"K":  {shape: aMemory, role: toSrc0, space: ConstBank, field: field{{26, 16}}, signed: true, base: 20, wide: -1, bank: field{{42, 5}}},
	"Kn": {shape: aMemory, role: toSrc0, space: ConstBank, field: field{{26, 16}}, signed: true, wide: -1, bank: field{{42, 5}}},
	"T":  {shape: aTarget, role: toTarget, field: offset24, signed: true}, "Ta": {shape: anAddress, role: toTarget, field: offset32},
	"TD": {shape: aResult, role: toDst, field: field{{14, 6}}, count: 4, bank: field{{46, 4}}},
	"IM": {shape: anImage, role: toSrc2, field: field{{26, 3}}},
	"TX": {shape: aHandle, role: toSrc2, kind: Texture, field: field{{32, 8}}}, "TS": {shape: aHandle, role: toSrc3, kind: Sampler, field: field{{40, 5}}},
	"SF": {shape: aHandle, role: toSrc2, kind: Reduction, field: field{{26, 3}}},
	"X1": vector(toSrc0, 20, coordinates), "X1g": vector(toSrc0, 20, gatherCoordinates), "X1d": vector(toSrc0, 20, gradCoordinates),
	"X13": vector(toSrc0, 20, func(uint64) uint8 { return 3 }), "XS": vector(toSrc0, 20, imageCoordinates),
	"XR": {shape: aVector, role: toSrc0, field: field{{20, 6}}, bank: field{{44, 2}}, vector: func(w uint64) uint8 { return 1 + uint8(w>>44&3) }},
	"X2": vector(toSrc1, 26, bitsOf(54, 56, 58)), "X2f": vector(toSrc1, 26, bitsOf(54, 55, 57)), "X2g": vector(toSrc1, 26, bitsOf(54, 55, 55, 56)),
	"X2d": vector(toSrc1, 26, func(w uint64) uint8 { return 2 << (w >> 52 & 1) }),
	"SV":  {shape: aResult, role: toSrc1, field: field{{14, 6}}, count: 4, bank: field{{49, 4}}},
	"AT":  {shape: aMemory, role: toSrc0, space: Attribute, field: field{{32, 10}}, base: 20, wide: -1},
	"VB":  {shape: aMemory, role: toSrc0, space: Vertex, field: field{{26, 16}}, signed: true, base: 20, wide: -1},
	"PX":  {shape: aMemory, role: toSrc0, space: Pixel, field: field{{26, 8}}, signed: true, base: 20, wide: -1},
	// Of short forms.
	"SC": reg(toSrc2, 8, 1), "SR1": reg(toSrc1, 26, 1), "SA1": reg(toSrc1, 20, 1),
	"SS1": short(toSrc1, 20, 8), "SS2": short(toSrc1, 26, 8), "SS2a": short(toSrc1, 26, 6), "SS3a": short(toSrc2, 8, 6),
	"Ns": num(toSrc1, 0, 0, true), "Nf": {shape: aNumber, role: toSrc1, field: field{{20, 12}}, shift: 20},
	"SBI": {shape: aChoice, role: toSrc0, field: field{{20, 4}}, base: 20, wide: 26},
	"SM2": shortMem(Local, 2, 1), "SM3": shortMem(Local, 3, 1), "SS2m": shortMem(Shared, 2, 1), "SS3m": shortMem(Shared, 3, 1),
	"SG2": shortMem(Global, 2, 1), "SG3": shortMem(Global, 3, 1), "SG2d": shortMem(Global, 2, 2), "SG3d": shortMem(Global, 3, 2),
	"SK": {shape: aMemory, role: toSrc0, space: ConstBank, field: offset8, signed: true, shift: 2, base: 20, wide: -1, bank: field{{5, 3}}},
	"Ts": {shape: aTarget, role: toTarget, field: field{{14, 14}}, signed: true, shift: 2},
	"Tc": {shape: aTarget, role: toTarget, field: field{{6, 22}}, signed: true, shift: 2},
	"XD": vector(toDst, 14, attributeCount), "XV": vector(toSrc1, 26, attributeCount),
}

// coordinates counts the registers of a texture's first operand: the dimensions, and one for an
// array's index or a handle, which share a register.
func coordinates(w uint64) uint8 {
	return min(uint8(w>>52&3), 2) + 1 + uint8((w>>50|w>>51)&1)
}

func gatherCoordinates(w uint64) uint8 { return coordinates(w) + uint8(w>>54&1) }

func gradCoordinates(w uint64) uint8 { return coordinates(w) + uint8(w>>54&1) }

func imageCoordinates(w uint64) uint8 { return min(uint8(w>>44&3), 2) + 1 }

func attributeCount(w uint64) uint8 { return uint8(w>>5&3) + 1 }

// bitsOf counts operands that are there if their bit is set.
func bitsOf(bits ...uint8) func(uint64) uint8 {
	return func(w uint64) (n uint8) {
		for _, b := range bits {
			n += uint8(w >> b & 1)
		}
		return n
	}
}

// place returns where an operand of a role stands, nil for predicates written and targets.
func (in *Inst) place(r role) *Operand {
	switch r {
	case toDst:
		return &in.Dst
	case toSrc0, toSrc1, toSrc2, toSrc3:
		return &in.Src[r-toSrc0]
	}
	return nil
}

// get reads an operand and reports the bits that it took.
func (o *operand) get(in *Inst, w uint64) (v Operand, used uint64, err error) {
	used = o.field.mask()
	n := o.field.get(w)
	switch o.shape {
	case aRegister:
		v = Operand{Kind: Reg, Reg: uint8(n), Count: o.registers(in)}
	case aSecond, aSecond3:
		return o.getSecond(w)
	case aThird:
		if w>>46&3 == 2 {
			return constant(w)
		}
		v, used = Operand{Kind: Reg, Reg: uint8(w >> 49 & 63), Count: o.count}, 63<<49|3<<46
	case aNumber:
		v = Operand{Kind: Imm, Value: o.number(n)}
	case aPredicate:
		v = Operand{Kind: Pred, Reg: uint8(n)}
	case aSpecial:
		v = Operand{Kind: Special, Reg: uint8(n)}
	case aMemory:
		v = Operand{Kind: Memory, Space: o.space, Reg: Zero, Count: max(o.count, 1), Bank: uint8(o.bank.get(w)), Value: o.number(n)}
		used |= o.bank.mask()
		if o.base != 0 {
			v.Reg = uint8(w >> o.base & 63)
			used |= 63 << o.base
		}
		if o.wide > 0 {
			v.Count += uint8(w >> o.wide & 1)
			used |= 1 << o.wide
		}
	case aVector:
		v = Operand{Kind: Reg, Reg: uint8(n), Count: o.vector(w)}
		used |= o.bank.mask()
	case aResult:
		v = Operand{Kind: Reg, Reg: uint8(n), Count: o.count, Mask: uint8(o.bank.get(w))}
		used |= o.bank.mask()
	case aChoice:
		if w>>o.wide&1 != 0 {
			v, used = Operand{Kind: Imm, Value: o.number(n)}, used|1<<o.wide
		} else {
			v, used = Operand{Kind: Reg, Reg: uint8(w >> o.base & 63), Count: 1}, 63<<o.base|1<<o.wide
		}
	case aShort:
		return o.getShort(w)
	case anImage:
		if w>>46&1 != 0 {
			v, used = Operand{Kind: Surface, Value: int64(n)}, used|1<<46
		} else {
			v, used = Operand{Kind: Surface, Reg: uint8(w >> 26 & 63), Count: 1}, 63<<26|1<<46
		}
	case aHandle:
		v = Operand{Kind: o.kind, Value: int64(n)}
	case theFlags:
		v = Operand{Kind: Flags}
	}
	return v, used, nil
}

// shortBanks are the constant buffers that short forms reach.
var shortBanks = [...]uint8{1: 0, 2: 1, 3: 16}

// getShort: selector zero is a register, but for the third of three inputs, which is always c[].
func (o *operand) getShort(w uint64) (Operand, uint64, error) {
	used, n, sel := o.field.mask()|o.bank.mask(), o.field.get(w), o.bank.get(w)
	switch {
	case sel != 0:
		return Operand{Kind: Const, Bank: shortBanks[sel], Value: int64(n << 2)}, used, nil
	case o.role == toSrc2:
		return Operand{}, 0, errField("constant buffer", 0)
	}
	return Operand{Kind: Reg, Reg: uint8(n), Count: 1}, used, nil
}

func (o *operand) registers(in *Inst) uint8 {
	if o.count != 0 {
		return o.count
	}
	switch {
	case in.Mod[Width] == B64, in.Mod[DstType]&3 == 3:
		return 2
	case in.Mod[Width] == B128:
		return 4
	}
	return 1
}

func (o *operand) number(n uint64) int64 {
	if o.signed {
		return extend(n, o.field.width()) << o.shift
	}
	return int64(n << o.shift)
}

func constant(w uint64) (Operand, uint64, error) {
	return Operand{Kind: Const, Bank: uint8(cBank.get(w)), Value: int64(cOffset.get(w) << 2)}, cBank.mask() | cOffset.mask() | 3<<46, nil
}

func (o *operand) getSecond(w uint64) (Operand, uint64, error) {
	const mode = 3 << 46
	switch w >> 46 & 3 {
	case 0:
		return Operand{Kind: Reg, Reg: uint8(w >> 26 & 63), Count: o.count}, mode | 63<<26, nil
	case 1:
		return constant(w)
	case 2:
		if o.shape == aSecond3 {
			return Operand{Kind: Reg, Reg: uint8(w >> 49 & 63), Count: o.count}, mode | 63<<49, nil
		}
		return Operand{}, 0, errField("second operand", 2)
	}
	return Operand{Kind: Imm, Value: o.number(o.field.get(w))}, mode | o.field.mask(), nil
}
