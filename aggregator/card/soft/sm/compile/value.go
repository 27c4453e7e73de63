package compile

import "math/bits"

// Shape says how a value differs between lanes.
type Shape uint8

// The shapes.
const (
	Uniform Shape = iota // the same in all lanes
	Affine               // base + lane*stride, which may wrap
	Vector
)

// NaN says what the bits of a value are if it is a float that is not a number.
type NaN uint8

// The states, the less general first.
const (
	Canonical NaN = iota // it has the bits that the hardware gives it, or the value is no float
	Lazy                 // it may have any bits, and stands for those that the hardware gives it
	Bits                 // the bits are what the value is
)

const (
	nanBits = 0x7fffffff
	infBits = 0x7f800000
)

// A Kind is what is known of a value in the lanes that run.
type Kind struct {
	Shape    Shape
	Stride   uint64 // of Affine
	Min, Max uint64 // unsigned, of all lanes
	NaN      NaN
}

// constant reports whether the value is known.
func (k Kind) constant() bool { return k.Shape == Uniform && k.Min == k.Max }

func constantKind(v uint64) Kind { return Kind{Min: v, Max: v, NaN: Bits}.normal() }

// anyKind is that of a value of which nothing is known.
func anyKind(width uint8) Kind { return Kind{Shape: Vector, Max: ones(width), NaN: Bits} }

func ones(width uint8) uint64 { return ^uint64(0) >> (64 - width) }

// normal drops distinctions without a difference: bits that are no NaN need no care.
func (k Kind) normal() Kind {
	if k.NaN == Bits && (k.Max <= infBits || k.constant() && k.Max == nanBits) {
		k.NaN = Canonical
	}
	if k.Shape == Affine && k.Stride == 0 {
		k.Shape = Uniform
	}
	if k.Shape != Affine {
		k.Stride = 0
	}
	return k
}

// join is what is known of a value that is one or the other.
func (k Kind) join(o Kind) Kind {
	out := Kind{Shape: max(k.Shape, o.Shape), Min: min(k.Min, o.Min), Max: max(k.Max, o.Max), NaN: max(k.NaN, o.NaN)}
	switch {
	case k.Shape != o.Shape || k.Stride != o.Stride:
		if k.Shape != Uniform || o.Shape != Uniform {
			out.Shape = Vector
		}
	default:
		out.Stride = k.Stride
	}
	return out
}

// widen makes ranges that still change as large as they can be, so that the analysis ends.
func (k Kind) widen(old Kind, width uint8) Kind {
	if k.Min != old.Min {
		k.Min = 0
	}
	if k.Max != old.Max {
		k.Max = ones(width)
	}
	return k
}

// steady reports whether base + lane*stride does not wrap in any lane, as a number of 32 bits: the steps
// are small, and no lane is near the end.
func (k Kind) steady() bool {
	switch k.Shape {
	case Uniform:
		return true
	case Affine:
		reach := k.Stride * (Lanes - 1)
		return k.Stride < 1<<24 && k.Max < 1<<32-reach
	}
	return false
}

// A Value is one in the code of a block. Which names it has depends on its shape; others are made when
// they are needed.
type Value struct {
	Kind
	width  uint8
	s, v   string // as an integer: the scalar (of Affine: of lane 0), the vector
	fs, fv string // as a float
	mask   string // of booleans: 32 bits

	// It is a half of a wide value.
	wide *Value
	high bool
	// It is the carry of the sum of these, whose result is lower.
	sum   [2]*Value
	lower *Value
}

// range of sums and products: anything if they can wrap.
func addRange(a, b Kind, width uint8) (lo, hi uint64) {
	hi, carry := bits.Add64(a.Max, b.Max, 0)
	if carry != 0 || hi > ones(width) {
		return 0, ones(width)
	}
	return a.Min + b.Min, hi
}

func mulRange(a, b Kind, width uint8) (lo, hi uint64) {
	top, hi := bits.Mul64(a.Max, b.Max)
	if top != 0 || hi > ones(width) {
		return 0, ones(width)
	}
	return a.Min * b.Min, hi
}
