package compile

import (
	"fmt"
	"strings"
)

// A Builder emits the code of one block after another. While the program is analysed it emits nothing,
// and only the kinds of values count.
type Builder struct {
	t    *translator
	emit bool
	out  strings.Builder
	name int  // of the last value
	side bool // the code here does not run on all ways to what follows: its names must not be kept

	block  *block
	in     *Instruction
	index  int // of the instruction in its block
	lanes  lanes
	active string // mask of the active lanes, unless the block is full
	slots  [Slots]*Value
	dirty  slotSet // slots whose value is not in memory
	stack  []Entry
	fact   *comparison // what holds on the way that is being emitted
	refuse string      // why the instruction has to be left to another executor after all
}

// lanes are those that execute an instruction: all, or those of a mask. A guard that is the same in all
// lanes is also there as a condition.
type lanes struct {
	all, guarded bool
	mask         string
	guard        *Value
}

// line emits an instruction with a result, and returns its name.
func (b *Builder) line(format string, args ...any) string {
	if !b.emit {
		return ""
	}
	b.name++
	name := fmt.Sprintf("%%t%d", b.name)
	b.out.WriteString(name)
	b.out.WriteString(" = ")
	fmt.Fprintf(&b.out, format, args...)
	b.out.WriteByte('\n')
	return name
}

// do emits an instruction without a result.
func (b *Builder) do(format string, args ...any) {
	if b.emit {
		fmt.Fprintf(&b.out, format, args...)
		b.out.WriteByte('\n')
	}
}

// label returns a new name of a place in the code.
func (b *Builder) label() string {
	b.name++
	return fmt.Sprintf("l%d", b.name)
}

func (b *Builder) place(label string) { b.do("%s:", label) }

func ty(width uint8) string { return fmt.Sprintf("i%d", width) }

func vty(width uint8) string { return fmt.Sprintf("<%d x i%d>", Lanes, width) }

func fty(width uint8) string {
	if width == 64 {
		return "double"
	}
	return "float"
}

func fvty(width uint8) string { return fmt.Sprintf("<%d x %s>", Lanes, fty(width)) }

// steps is the constant vector of the distances of lanes.
func steps(width uint8, stride, step uint64) string {
	var s strings.Builder
	s.WriteByte('<')
	for i := range uint64(Lanes) {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "%s %s", ty(width), literal(width, i%half*stride+i/half*step))
	}
	s.WriteByte('>')
	return s.String()
}

// literal is a number as IR has it.
func literal(width uint8, v uint64) string {
	switch width {
	case 1:
		return map[uint64]string{0: "false", 1: "true"}[v&1]
	case 32:
		return fmt.Sprint(int32(v))
	}
	return fmt.Sprint(int64(v))
}

func (b *Builder) splat(typ string, scalar string) string {
	one := b.line("insertelement <%d x %s> poison, %s %s, i32 0", Lanes, typ, typ, scalar)
	return b.line("shufflevector <%d x %s> %s, <%d x %s> poison, <%d x i32> zeroinitializer", Lanes, typ, one, Lanes, typ, Lanes)
}

// keep stores a name that was made later, if all ways lead by here.
func (b *Builder) keep(at *string, name string) string {
	if !b.side {
		*at = name
	}
	return name
}

// scalar is the name of a value that is the same in all lanes, or of lane 0 of an affine one.
func (b *Builder) scalar(x *Value) string {
	switch {
	case !b.emit:
		return ""
	case x.constant():
		return literal(x.width, x.Min)
	case x.s != "":
		return x.s
	case x.fs != "":
		return b.keep(&x.s, b.line("bitcast %s %s to %s", fty(x.width), x.fs, ty(x.width)))
	}
	panic("compile: value without a name")
}

// vector is the name of a value in all lanes.
func (b *Builder) vector(x *Value) string {
	switch {
	case !b.emit:
		return ""
	case x.v != "":
		return x.v
	case x.fv != "":
		return b.keep(&x.v, b.line("bitcast %s %s to %s", fvty(x.width), x.fv, vty(x.width)))
	case x.width == 1 && x.mask != "":
		return b.keep(&x.v, b.line("bitcast i32 %s to <32 x i1>", x.mask))
	case x.constant() && x.Min == 0:
		return "zeroinitializer"
	}
	v := b.splat(ty(x.width), b.scalar(x))
	if x.Shape == Affine {
		v = b.line("add %s %s, %s", vty(x.width), v, steps(x.width, x.Stride, x.Step))
	}
	return b.keep(&x.v, v)
}

// fscalar and fvector are the names of a value as a float.
func (b *Builder) fscalar(x *Value) string {
	if x.fs != "" || !b.emit {
		return x.fs
	}
	return b.keep(&x.fs, b.line("bitcast %s %s to %s", ty(x.width), b.scalar(x), fty(x.width)))
}

func (b *Builder) fvector(x *Value) string {
	switch {
	case x.fv != "" || !b.emit:
		return x.fv
	case x.Shape == Uniform:
		return b.keep(&x.fv, b.splat(fty(x.width), b.fscalar(x)))
	}
	return b.keep(&x.fv, b.line("bitcast %s %s to %s", vty(x.width), b.vector(x), fvty(x.width)))
}

// maskOf is a boolean as 32 bits.
func (b *Builder) maskOf(x *Value) string {
	switch {
	case !b.emit:
		return ""
	case x.constant():
		return literal(32, -x.Min)
	case x.mask != "":
		return x.mask
	case x.Shape == Uniform:
		return b.keep(&x.mask, b.line("sext i1 %s to i32", b.scalar(x)))
	}
	return b.keep(&x.mask, b.line("bitcast <32 x i1> %s to i32", b.vector(x)))
}

// laneVector is a mask of lanes as a vector.
func (b *Builder) laneVector(mask string) string { return b.line("bitcast i32 %s to <32 x i1>", mask) }

// made makes a value of an operation that has the same form on scalars and vectors.
func (b *Builder) made(k Kind, width uint8, emit func(vector bool) string) *Value {
	x := &Value{Kind: k.normal(), width: width}
	switch {
	case x.constant():
	case x.Shape == Vector:
		x.v = emit(true)
	default:
		x.s = emit(false)
	}
	return x
}

// either returns the names of operands in the one form, and their type.
func (b *Builder) either(vector bool, x *Value) (typ, name string) {
	if vector {
		return vty(x.width), b.vector(x)
	}
	return ty(x.width), b.scalar(x)
}
