package compile

import (
	"fmt"
	"math/bits"
)

// LaneID is the lane.
func (b *Builder) LaneID() *Value {
	if b.t.kernel {
		return b.rem(b.threadOf(), Lanes)
	}
	return &Value{Kind: Kind{Shape: Affine, Stride: 1, Step: half, Max: Lanes - 1}, width: 32, s: "0"}
}

// WarpID is the number of the warp in its block.
func (b *Builder) WarpID() *Value {
	if b.t.kernel {
		return b.div(b.threadOf(), Lanes)
	}
	k := Kind{Max: uint64(b.t.warps() - 1), NaN: Bits}
	return b.made(k.normal(), 32, func(bool) string { return b.fromContext("i32", "Warp", 0) })
}

func (t *translator) warps() uint32 {
	s := t.options.Block
	return (s[0]*s[1]*s[2] + Lanes - 1) / Lanes
}

// BlockID is the place of the block in the grid.
func (b *Builder) BlockID(dim int) *Value {
	if b.t.kernel {
		return b.threadNumber("ctaid", dim, 0, b.t.options.Grid[dim]-1)
	}
	k := Kind{Max: uint64(b.t.options.Grid[dim] - 1), NaN: Bits}
	return b.made(k.normal(), 32, func(bool) string { return b.fromContext("i32", "Block", 4*dim) })
}

// BlockSize is that of the launch.
func (b *Builder) BlockSize(dim int) *Value { return b.Const(b.t.options.Block[dim]) }

// GridSize is in blocks.
func (b *Builder) GridSize(dim int) *Value {
	if b.t.kernel {
		return b.threadNumber("nctaid", dim, 1, b.t.options.Grid[dim])
	}
	k := Kind{Min: 1, Max: uint64(b.t.options.Grid[dim]), NaN: Bits}
	return b.made(k.normal(), 32, func(bool) string { return b.fromContext("i32", "Grid", 4*dim) })
}

// Thread is the number of the thread in its block.
func (b *Builder) Thread() *Value {
	return b.Add(b.Mul(b.WarpID(), b.Const(Lanes)), b.LaneID())
}

// ThreadID is the place of the thread in its block. Rows of whole or half warps keep it affine or uniform.
func (b *Builder) ThreadID(dim int) *Value {
	s := b.t.options.Block
	if b.t.kernel {
		return b.threadNumber("tid", dim, 0, s[dim]-1)
	}
	unit := uint32(1) // threads with the same place
	for _, n := range s[:dim] {
		unit *= n
	}
	if s[dim] == 1 {
		return b.Const(0)
	}
	n := b.Thread()
	if dim == 0 && s[1]*s[2] == 1 {
		return n
	}
	if unit*s[dim]%Lanes == 0 && (unit == 1 || unit%Lanes == 0) {
		first := b.Mul(b.WarpID(), b.Const(Lanes))
		first = b.rem(b.div(first, unit), s[dim])
		if unit == 1 {
			return b.Add(first, b.LaneID())
		}
		return first
	}
	if dim == 0 && s[0] == half { // rows of half warps
		return &Value{Kind: Kind{Shape: Affine, Stride: 1, Max: half - 1}, width: 32, s: "0"}
	}
	if dim == 1 && s[0] == half && s[1]%2 == 0 {
		row := b.rem(b.Mul(b.WarpID(), b.Const(2)), s[1])
		other := &Value{Kind: Kind{Shape: Affine, Step: 1, Max: 1}, width: 32, s: "0"}
		row = b.Add(row, other)
		row.Max = uint64(s[1] - 1)
		return row
	}
	return b.rem(b.div(n, unit), s[dim])
}

// PackedID are the places in all dimensions in one word.
func (b *Builder) PackedID() *Value {
	x, y, z := b.ThreadID(0), b.ThreadID(1), b.ThreadID(2)
	v := *b.Or(b.Or(x, b.Shl(y, b.Const(16))), b.Shl(z, b.Const(26)))
	v.packed = []*Value{x, y, z}
	return &v
}

// Field is some bits of a value, nil if it is not known to be made of such.
func (b *Builder) Field(x *Value, pos, length uint64) *Value {
	for i, at := range [...][2]uint64{{0, 16}, {16, 10}, {26, 6}} {
		if x.packed != nil && pos == at[0] && length == at[1] {
			return x.packed[i]
		}
	}
	return nil
}

func (b *Builder) div(x *Value, n uint32) *Value {
	if n == 1 {
		return x
	}
	return b.binary("udiv", x, b.Const(n), Kind{Shape: plain(x), Min: x.Min / uint64(n), Max: x.Max / uint64(n)})
}

func (b *Builder) rem(x *Value, n uint32) *Value {
	if x.Max < uint64(n) {
		return x
	}
	return b.binary("urem", x, b.Const(n), Kind{Shape: plain(x), Max: uint64(n - 1)})
}

// Bank is a word of a constant buffer. The function finds out at its start whether it can be read, and does
// not start if it cannot.
func (b *Builder) Bank(bank uint8, offset int64) *Value {
	at := constant{bank & 31, offset}
	n, ok := b.t.constants[at]
	if !ok && len(b.t.constants) == MaxConstants {
		b.Refuse("many constants")
		return b.Const(0)
	}
	if !ok {
		n = len(b.t.constants)
		b.t.constants[at] = n
	}
	limit := b.t.limit(at)
	if b.t.kernel && limit == 0 {
		limit = ones(32)
	}
	if limit != 0 { // read at the start, or it could be more by now
		return b.made(Kind{Max: limit, NaN: Bits}.normal(), 32, func(bool) string { return fmt.Sprintf("%%c%dv", n) })
	}
	return b.made(Kind{Max: ones(32), NaN: Bits}, 32, func(bool) string {
		return b.line("load i32, ptr %%c%d", n)
	})
}

// limit is what a constant is taken to be at most: somewhat more than it is in the launch. Zero is unknown.
func (t *translator) limit(at constant) uint64 {
	limit, ok := t.bounds[at]
	if !ok && t.options.Constant != nil {
		if v, ok := t.options.Constant(at.bank, at.offset); ok && v < maxLimit {
			limit = max(uint64(1)<<bits.Len32(v), 256) - 1
		}
		t.bounds[at] = limit // the memory may change
	}
	return limit
}

// maxLimit bounds constants whose size may be of use: larger ones are addresses or floats.
const maxLimit = 1 << 24

type constant struct {
	bank   uint8
	offset int64
}

// findConstants emits the places of the constants.
func (b *Builder) findConstants() {
	all := make([]constant, len(b.t.constants))
	for c, n := range b.t.constants {
		all[n] = c
	}
	b.t.limits = make([]Constant, len(all))
	for n, c := range all {
		b.t.limits[n] = Constant{c.bank, c.offset, ^uint32(0)}
		next := b.label()
		b.do("%%c%d = load ptr, ptr %s", n, b.line("getelementptr i8, ptr %%c, i64 %d", int(offsetOf("Constants"))+8*n))
		b.do("br i1 %s, label %%%s, label %%bad", b.line("icmp ne ptr %%c%d, null", n), next)
		b.place(next)
		if limit := b.t.limit(c); limit != 0 {
			next := b.label()
			b.do("%%c%dv = load i32, ptr %%c%d", n, n)
			b.do("br i1 %s, label %%%s, label %%bad", b.line("icmp ule i32 %%c%dv, %d", n, limit), next)
			b.place(next)
			b.t.limits[n].Max = uint32(limit)
		}
	}
}
