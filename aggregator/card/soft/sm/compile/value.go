package compile

import "math/bits"

// Shape says how a value differs between lanes.
type Shape uint8

// The shapes.
const (
	Uniform Shape = iota // the same in all lanes
	Affine               // base + a distance of its own for each lane, which may wrap
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
	Stride   uint64 // of Affine: between lanes of a half warp
	Step     uint64 // of Affine: between the half warps. Blocks may be 16 threads wide
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
	if k.Shape == Affine && k.Stride == 0 && k.Step == 0 {
		k.Shape = Uniform
	}
	if k.Shape != Affine {
		k.Stride, k.Step = 0, 0
	}
	return k
}

// join is what is known of a value that is one or the other.
func (k Kind) join(o Kind) Kind {
	out := Kind{Shape: max(k.Shape, o.Shape), Min: min(k.Min, o.Min), Max: max(k.Max, o.Max), NaN: max(k.NaN, o.NaN)}
	switch {
	case k.Shape != o.Shape || k.Stride != o.Stride || k.Step != o.Step:
		if k.Shape != Uniform || o.Shape != Uniform {
			out.Shape = Vector
		}
	default:
		out.Stride, out.Step = k.Stride, k.Step
	}
	return out
}

// widen makes ranges that still change much larger, so that the analysis ends. Numbers that conditions bound
// stay below one of the steps.
func (k Kind) widen(old Kind, width uint8) Kind {
	if k.Min != old.Min {
		k.Min = 0
	}
	if k.Max != old.Max {
		for _, limit := range [...]uint64{1<<16 - 1, 1<<24 - 1, 1<<31 - 1, 1<<32 - 1, 1<<40 - 1} {
			if k.Max <= limit && limit < ones(width) {
				k.Max = limit
				return k
			}
		}
		k.Max = ones(width)
	}
	return k
}

// half is how many lanes a half warp has.
const half = Lanes / 2

// even reports whether the distance of neighbours is the same everywhere.
func (k Kind) even() bool { return k.Step == half*k.Stride }

// steady reports whether an affine value does not wrap in any lane, as a number of 32 bits: the steps
// are small, and no lane is near the end.
func (k Kind) steady() bool {
	switch k.Shape {
	case Uniform:
		return true
	case Affine:
		reach := k.Stride*(half-1) + k.Step
		return k.Stride < 1<<24 && k.Step < 1<<28 && k.Max < 1<<32-reach
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
	// It has the numbers of a thread, in 16, 10 and 6 bits.
	packed []*Value
	// It is the result of a comparison of integers.
	compared *comparison
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
