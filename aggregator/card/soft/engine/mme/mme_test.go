package mme

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Instructions, as numbers of fields.
type code uint32

const ends code = 1 << 7

func op(operation, route, dst, a, b uint32) code {
	return code(operation | route<<4 | dst<<8 | a<<11 | b<<14)
}
func (c code) function(f uint32) code { return c | code(f<<17) }
func (c code) immediate(i int) code   { return c&0x3fff | code(uint32(i)<<14) }
func (c code) field(from, size, to uint32) code {
	return c | code(from<<17|size<<22|to<<27)
}

// move sets a register, send sends it, address sets the method, take takes a parameter.
func move(dst uint32, i int) code       { return op(opImmediate, 1, dst, 0, 0).immediate(i) }
func send(a uint32) code                { return op(opImmediate, 4, 0, a, 0).immediate(0) }
func address(m uint32) code             { return op(opImmediate, 2, 0, 0, 0).immediate(int(m / 4)) }
func take(dst uint32) code              { return op(opImmediate, 0, dst, 0, 0).immediate(0) }
func jump(a uint32, to int) code        { return op(opBranch, 1, 0, a, 0).immediate(to) } // if not zero
func jumpAnnul(a uint32, to int) code   { return jump(a, to) | 1<<5 }
func addInto(dst, a uint32, i int) code { return op(opImmediate, 1, dst, a, 0).immediate(i) }

var nop = op(opImmediate, 1, 0, 0, 0)

// run runs a macro with parameters, and returns what it sent and how it ended.
func run(t require.TestingT, shadow map[uint32]uint32, program []code, params ...uint32) (sent [][2]uint32, last State, r Run) {
	var m Memory
	var values [methodMask + 1]uint32
	for k, v := range shadow {
		values[k/4] = v
	}
	const at, macro = 0x123, 5
	m.Start[macro] = at
	for i, w := range program {
		m.Code[at+i] = uint32(w)
	}
	r.Begin(&m, macro, params[0])
	params = params[1:]
	for range 1000 {
		s, state := r.Step(&m, &values)
		if s.Valid {
			sent = append(sent, [2]uint32{s.Method, s.Data})
		}
		if state == Waiting && len(params) > 0 {
			r.Param, r.HasParam, params = params[0], true, params[1:]
		} else if state != Running {
			return sent, state, r
		}
	}
	t.Errorf("the macro does not end")
	t.FailNow()
	return nil, 0, r
}

// TestPrograms: macros do what a driver wrote them for.
func TestPrograms(t *testing.T) {
	type list = [][2]uint32
	for name, p := range map[string]struct {
		program []code
		params  []uint32
		want    list
		ends    State
	}{
		"end, and one more": {[]code{address(0x100), send(1) | ends, send(1), send(1)}, []uint32{7}, list{{0x100, 7}, {0x100, 7}}, Ended},
		"loop with a delay slot": {
			[]code{address(0x200), addInto(1, 1, -1), jump(1, -1), send(1), nop | ends, nop}, []uint32{3},
			list{{0x200, 2}, {0x200, 1}, {0x200, 0}}, Ended,
		},
		"annulled": {[]code{address(0x200), jumpAnnul(1, 2), send(1), nop | ends, nop}, []uint32{3}, nil, Ended},
		"end unless taken, which is taken": {
			[]code{address(0x200), jump(1, 3) | ends, send(1), send(0), nop | ends, nop}, []uint32{3}, list{{0x200, 3}}, Ended,
		},
		"end unless taken": {[]code{address(0x200), jump(0, 3) | ends, send(1), send(1)}, []uint32{3}, list{{0x200, 3}}, Ended},
		"an end after a taken branch is ignored": {
			[]code{address(0x200), jump(1, 3), nop | ends, nop, send(1) | ends, nop}, []uint32{4}, list{{0x200, 4}}, Ended,
		},
		"parameters": {
			[]code{address(0x300), take(2), send(2), op(opImmediate, 3, 3, 1, 0).immediate(0), send(3) | ends, nop}, []uint32{1, 20, 30},
			list{{0x300, 20}, {0x300, 1}, {0x300, 30}}, Ended,
		},
		"a parameter is missing": {[]code{take(2), take(3) | ends, nop}, []uint32{1, 2}, nil, Waiting},
		"increments": {
			[]code{move(2, 0x40|2<<12), op(opImmediate, 2, 0, 2, 0), send(1), send(1), op(opImmediate, 7, 0, 2, 0) | ends, nop}, []uint32{9},
			list{{0x100, 9}, {0x108, 9}, {0x100, 2}}, Ended,
		},
		"a method and its parameter":           {[]code{op(opImmediate, 6, 2, 1, 0) | ends, send(2)}, []uint32{0x10 | 1<<12, 5}, list{{0x40, 5}, {0x44, 0x1010}}, Ended},
		"a method from a parameter's register": {[]code{op(opImmediate, 5, 2, 1, 0) | ends, send(2)}, []uint32{0x10, 5}, list{{0x40, 5}}, Ended},
		"the last data of a method":            {[]code{address(0x400), op(opRead, 4, 0, 1, 0).immediate(0xd00) | ends, nop}, []uint32{3}, list{{0x400, 0x77}}, Ended},
		"a branch in a delay slot":             {[]code{jump(1, 2), jump(1, 1)}, []uint32{1}, nil, Broken},
		"a branch after the end":               {[]code{nop | ends, jump(1, 1)}, []uint32{1}, nil, Broken},
		"an undefined operation":               {[]code{op(opUndefined, 1, 0, 0, 0)}, []uint32{1}, nil, Broken},
		"an undefined function":                {[]code{op(opRegisters, 1, 2, 1, 1).function(4)}, []uint32{1}, nil, Broken},
		"off the memory":                       {[]code{jumpAnnul(1, CodeWords)}, []uint32{1}, nil, Broken},
		"before the memory":                    {[]code{jumpAnnul(1, -0x124)}, []uint32{1}, nil, Broken},
		"the first register cannot be written": {[]code{address(0x80), move(0, 5), send(0) | ends, nop}, []uint32{1}, list{{0x80, 0}}, Ended},
	} {
		t.Run(name, func(t *testing.T) {
			got, state, r := run(t, map[uint32]uint32{0x340c: 0x77}, p.program, p.params...)
			require.Equal(t, p.want, got)
			require.Equal(t, p.ends, state)
			require.Equal(t, p.ends == Waiting, r.Active)
		})
	}
}

// TestArithmetic: pairs of words add and subtract as 64 bits, fields move bit by bit, and logic is
// that of each bit.
func TestArithmetic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.Uint32()
		a, b := [2]uint32{word.Draw(t, "a"), word.Draw(t, "a high")}, [2]uint32{word.Draw(t, "b"), word.Draw(t, "b high")}
		wide := func(w [2]uint32) uint64 { return uint64(w[1])<<32 | uint64(w[0]) }
		one := func(parts ...code) []uint32 {
			program := append([]code{take(2), take(3), take(4)}, parts...)
			_, state, r := run(t, nil, append(program, nop|ends, nop), a[0], a[1], b[0], b[1])
			require.Equal(t, Ended, state)
			return r.Registers[:]
		}
		for first, want := range map[uint32]uint64{0: wide(a) + wide(b), 2: wide(a) - wide(b)} {
			r := one(op(opRegisters, 1, 5, 1, 3).function(first), op(opRegisters, 1, 6, 2, 4).function(first+1))
			require.Equal(t, want, wide([2]uint32{r[5], r[6]}))
		}
		bit := func(w uint32, i uint32) uint32 {
			if i > 31 {
				return 0
			}
			return w >> i & 1
		}
		fields := rapid.Uint32Range(0, 31)
		from, size, to := fields.Draw(t, "from"), fields.Draw(t, "size"), fields.Draw(t, "to")
		r := one(op(opInsert, 1, 5, 1, 3).field(from, size, to), op(opExtractA, 1, 6, 1, 3).field(0, size, to), op(opExtractB, 1, 7, 1, 3).field(from, size, 0))
		for i := range uint32(32) {
			want := bit(a[0], i)
			if i >= to && i < to+size {
				want = bit(b[0], from+i-to)
			}
			require.Equal(t, want, bit(r[5], i), "insert, bit %d", i)
			want = 0
			if i >= to && i < to+size {
				want = bit(b[0], a[0]&31+i-to)
			}
			require.Equal(t, want, bit(r[6], i), "extract at a register, bit %d", i)
			want = 0
			if s := a[0] & 31; i >= s && i < s+size {
				want = bit(b[0], from+i-s)
			}
			require.Equal(t, want, bit(r[7], i), "extract to a register, bit %d", i)
		}
		for f, want := range map[uint32][4]uint32{8: {0, 1, 1, 0}, 9: {0, 1, 1, 1}, 10: {0, 0, 0, 1}, 11: {0, 0, 1, 0}, 12: {1, 1, 1, 0}} {
			r := one(op(opRegisters, 1, 5, 1, 3).function(f))
			for i := range uint32(32) {
				require.Equal(t, want[bit(a[0], i)*2+bit(b[0], i)], bit(r[5], i), "function %d, bit %d", f, i)
			}
		}
	})
}

// TestAnyCode: no code breaks a bound, and a run that ended stays so.
func TestAnyCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m Memory
		var values [methodMask + 1]uint32
		for i := range 64 {
			m.Code[i] = rapid.Uint32().Draw(t, "word")
		}
		m.Start[0] = rapid.Uint32Range(0, CodeWords).Draw(t, "start")
		var r Run
		r.Begin(&m, 0, 1)
		for range 200 {
			r.Param, r.HasParam = 3, true
			s, state := r.Step(&m, &values)
			require.LessOrEqual(t, s.Method, uint32(methodMask*4))
			require.Zero(t, r.Registers[0])
			require.Equal(t, state == Running, r.Active)
			if !r.Active {
				return
			}
		}
	})
}
