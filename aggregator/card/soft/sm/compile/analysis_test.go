package compile

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// toy is a front end for tests: a program is a list of instructions of 8 bytes.
type toy []Instruction

func (p toy) Decode(pc uint32) (Instruction, bool) {
	if pc%8 != 0 || int(pc/8) >= len(p) {
		return Instruction{}, false
	}
	in := p[pc/8]
	in.PC, in.Next = pc, pc+8
	if in.Guard == (Guard{}) {
		in.Guard = Guard{Pred: Predicates - 1, Always: true}
	}
	if in.Mean == nil && in.Flow == Straight && in.Name == "" {
		in.Mean = func(*Builder) {}
	}
	if in.Reads == nil {
		in.Reads = []Slot{}
	}
	return in, true
}

func means(f func(b *Builder)) Instruction { return Instruction{Mean: f} }

// compiled is the translator of a program after its analysis.
func compiled(t *testing.T, p toy, block [3]uint32) *translator {
	c := &translator{
		front: p, options: Options{Grid: [3]uint32{8, 1, 1}, Block: block, MaxBlocks: 100, MaxInstructions: 100, MaxText: 1 << 20},
		code: make(map[uint32]*Instruction), declared: make(map[string]bool), constants: make(map[constant]int), bounds: make(map[constant]uint64),
	}
	require.NoError(t, c.scan())
	c.read = allSlots
	require.NoError(t, c.settle())
	return c
}

// at returns the block of full warps at a program counter.
func (t *translator) at(pc uint32) *block {
	for _, k := range t.blocks {
		if k.pc == pc && k.full {
			return k
		}
	}
	return nil
}

// A counter and a pointer of 64 bits keep their kinds around a loop, and the loop does not diverge.
func TestLoopKeepsKinds(t *testing.T) {
	c := compiled(t, toy{
		means(func(b *Builder) { b.SetReg(0, b.Const(100)) }),
		means(func(b *Builder) {
			sum, carry := b.AddCarry(b.Shl(b.ThreadID(0), b.Const(2)), b.Bank(0, 0), b.False())
			high, _ := b.AddCarry(b.Const(0), b.Bank(0, 4), carry)
			b.SetReg(2, sum)
			b.SetReg(3, high)
		}),
		means(func(b *Builder) { // 16: the loop
			sum, carry := b.AddCarry(b.Reg(2), b.Const(128), b.False())
			high, _ := b.AddCarry(b.Reg(3), b.Const(0), carry)
			b.SetReg(2, sum)
			b.SetReg(3, high)
		}),
		means(func(b *Builder) { b.SetReg(0, b.Sub(b.Reg(0), b.Const(1))) }),
		means(func(b *Builder) { b.SetPred(1, b.Compare("ne", b.Reg(0), b.Const(0))) }),
		{Flow: Branch, Target: 16, Guard: Guard{Pred: 1}},
		{Flow: Exit},
	}, [3]uint32{64, 1, 1})
	loop := c.at(16)
	require.Equal(t, Uniform, loop.entry[0].Shape)
	require.True(t, loop.wide[1].ok)
	require.Equal(t, Affine, loop.wide[1].Shape)
	require.EqualValues(t, 4, loop.wide[1].Stride)
	require.True(t, loop.starts, "loops can be entered")
	require.False(t, c.incomplete)
	for _, k := range c.blocks {
		require.Empty(t, k.stack, "nothing diverges")
	}
}

// The sides of a branch that joins have the stack that says where they wait; behind it the stack is empty.
func TestStackIsStatic(t *testing.T) {
	c := compiled(t, toy{
		means(func(b *Builder) { b.SetPred(1, b.Compare("ult", b.LaneID(), b.Reg(0))) }),
		{Flow: Push, Kind: JoinTo, Target: 48},
		{Flow: Branch, Target: 32, Guard: Guard{Pred: 1}},
		{Join: true},
		{Join: true}, // 32: the other side
		{Flow: Exit},
		{Flow: Exit}, // 48
	}, [3]uint32{32, 1, 1})
	places := make(map[string]bool)
	for _, k := range c.blocks {
		places[placeOf(k.pc, k.stack)] = true
	}
	require.True(t, places[placeOf(32, []Entry{{Kind: JoinTo, Target: 48}, {Kind: Diverge, Target: 24}})])
	require.True(t, places[placeOf(24, []Entry{{Kind: JoinTo, Target: 48}})])
	require.True(t, places["30"])
	require.False(t, c.incomplete)
}

// Only what somebody reads later is live, and a form without a meaning ends what is known of what it
// writes.
func TestLivenessAndCallOut(t *testing.T) {
	c := compiled(t, toy{
		means(func(b *Builder) { b.SetReg(0, b.Const(1)); b.SetReg(1, b.Const(2)); b.SetReg(2, b.Const(3)) }),
		{Name: "unknown", Reads: []Slot{1}, Writes: []Slot{1}},
		means(func(b *Builder) { b.SetReg(3, b.Add(b.Reg(0), b.Reg(1))); b.Reg(3) }),
		{Flow: Exit},
	}, [3]uint32{32, 1, 1})
	after := c.at(16)
	require.NotNil(t, after)
	require.True(t, after.start.has(0))
	require.True(t, after.start.has(1))
	require.False(t, after.start.has(2))
	require.True(t, after.entry[0].constant())
	require.Equal(t, Vector, after.entry[1].Shape)
	require.Equal(t, 1, c.missing["unknown"])
}

// Hostile flow of control ends with an error or with less code, and never with more than the bounds.
func TestBounds(t *testing.T) {
	var p toy
	for i := range 90 {
		p = append(p, Instruction{Flow: Branch, Target: uint32(8 * (i * 37 % 90)), Guard: Guard{Pred: uint8(1 + i%6)}})
	}
	out, err := Compile(p, Options{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}})
	if err == nil {
		require.LessOrEqual(t, out.Blocks, defaultBlocks)
		require.LessOrEqual(t, len(out.IR), defaultText)
	}
	_, err = Compile(make(toy, 5000), Options{Grid: [3]uint32{1, 1, 1}, Block: [3]uint32{32, 1, 1}})
	require.EqualError(t, err, "more than 4096 instructions can be reached")
	_, err = Compile(make(toy, 1), Options{})
	require.EqualError(t, err, "grid [0 0 0] of blocks [0 0 0]: want sizes of at least 1")
}

func TestKindJoin(t *testing.T) {
	affine := Kind{Shape: Affine, Stride: 4, Max: 124}
	for _, c := range []struct {
		a, b, want Kind
	}{
		{constantKind(1), constantKind(3), Kind{Min: 1, Max: 3}},
		{affine, affine, affine},
		{affine, Kind{Shape: Affine, Stride: 8, Max: 300}, Kind{Shape: Vector, Max: 300}},
		{affine, constantKind(5), Kind{Shape: Vector, Max: 124}},
		{Kind{Max: ones(32), NaN: Lazy}, Kind{Max: ones(32), NaN: Bits}, Kind{Max: ones(32), NaN: Bits}},
		{Kind{Max: ones(32), NaN: Lazy}, constantKind(7), Kind{Max: ones(32), NaN: Lazy}},
	} {
		require.Equal(t, c.want, c.a.join(c.b).normal())
		require.Equal(t, c.want, c.b.join(c.a).normal())
	}
}

// A base and a stride of 32 bits are those of 64 only if no lane wraps.
func TestOnlySteadyValuesStayAffineWhenExtended(t *testing.T) {
	b := &Builder{}
	for _, c := range []struct {
		limit uint64
		want  Shape
	}{{1 << 20, Affine}, {1<<32 - 125, Affine}, {1<<32 - 124, Vector}, {1<<32 - 1, Vector}} {
		x := &Value{Kind: Kind{Shape: Affine, Stride: 4, Step: 64, Max: c.limit, NaN: Bits}, width: 32}
		require.Equal(t, c.want, b.Extend(x, false).Shape, "%#x", c.limit)
	}
}
