package engine

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// c8b5Side are the methods that describe one side of a copy.
func c8b5Side(s *surfaceCase, offset, pitch, block, origin uint32) writes {
	return writes{{offset, uint32(s.VA >> 32)}, {offset + 4, uint32(s.VA)}, {pitch, s.Pitch}, {block, s.High<<4 | s.Deep<<8 | 1<<12}, {block + 4, s.Width},
		{block + 8, s.Height}, {block + 12, 1}, {block + 16, s.Layer}, {block + 20, 0x77<<16 | 0x99}, {origin, s.X}, {origin + 4, s.Y}}
}

func bitAt(on bool, n uint32) uint32 {
	if on {
		return 1 << n
	}
	return 0
}

func checkC8B5(t require.TestingT, h *HopperCopy, c copyCase, count, launch uint32) {
	want := ceModel(&c)
	r := newRig(t, &c, want)
	list := append(c8b5Side(&c.Src, 0x400, 0x410, 0x728, 0x744), c8b5Side(&c.Dst, 0x408, 0x414, 0x70c, 0x74c)...)
	list = append(list, writes{{0x418, c.Length}, {0x41c, count}, {0x700, c.Const[0]}, {0x704, c.Const[1]}, {0x708, c.Format},
		{0x240, uint32(c.SemVA >> 32)}, {0x244, uint32(c.SemVA)}, {0x248, c.Payload}}...)
	for _, w := range list {
		require.Equal(t, Done, h.Method(r.env, 0xc8b5, w[0], w[1]), "%x", w)
	}
	launch |= map[uint8]uint32{0: 0, 1: 1 << 3, 4: 2 << 3}[c.Sem] | bitAt(c.Interrupt, 6) | bitAt(c.Src.Linear, 7) | bitAt(c.Dst.Linear, 8) | bitAt(c.Remap, 10)
	r.finish(h.Method(r.env, 0xc8b5, 0x300, launch), h.Step, &h.Fault)
	r.compare()
	require.EqualValues(t, want.bytes, r.env.Stats.Class(0xc8b5).Bytes.Load())
	require.Len(t, r.events, int(bitAt(c.Interrupt, 0)))
}

var c8b5Cases = rapid.Custom(func(t *rapid.T) copyCase {
	c := copyCase{Keeps: true}
	elemSrc, elemDst := uint64(1), uint64(1)
	if c.Remap = rapid.Bool().Draw(t, "remap"); c.Remap {
		for comp := range 4 {
			c.Format |= uint32(rapid.IntRange(0, 6).Draw(t, "component")) << (4 * comp)
		}
		c.Format |= rapid.Uint32().Draw(t, "sizes") & 0x03330000
		bpc := uint64(c.Format>>16&3) + 1
		elemSrc, elemDst = bpc*(uint64(c.Format>>20&3)+1), bpc*(uint64(c.Format>>24&3)+1)
	}
	c.Const = [2]uint32{rapid.Uint32().Draw(t, "const a"), rapid.Uint32().Draw(t, "const b")}
	c.Src = drawSurface(t, "src", srcBase, false, elemSrc)
	c.Dst = drawSurface(t, "dst", 0x20_0000_0000, false, elemDst)
	c.Length = uint32(rapid.IntRange(0, 150).Draw(t, "length"))
	c.Lines = uint32(rapid.IntRange(0, 40).Draw(t, "lines"))
	c.around(t)
	c.SemVA &^= 15
	return injective(c)
})

func TestC8B5Copy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for range 8 {
			c := c8b5Cases.Draw(t, "case")
			count, launch := c.Lines, uint32(2|1<<9)
			switch rapid.IntRange(0, 4).Draw(t, "kind") {
			case 0:
				c.Lines, launch = 1, 1 // the number of lines counts only if it is enabled
			case 1:
				c.Lines, launch = 0, 1<<9 // no transfer
			}
			checkC8B5(t, &HopperCopy{}, c, count, launch)
		}
	})
}

// TestHopperUpload: inline data of each class that takes it.
func TestHopperUpload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := uploadCases.Draw(t, "case")
		class := rapid.SampledFrom([]uint16{0xa140, 0xcbc0, 0xcb97}).Draw(t, "class")
		var h HopperGraphics
		r := newRig(t, &c, m2mfModel(&c))
		s := &c.Dst
		for _, w := range (writes{{0x180, c.Length}, {0x184, c.Lines}, {0x188, uint32(s.VA >> 32)}, {0x18c, uint32(s.VA)}, {0x190, s.Pitch}, {0x194, s.High<<4 | s.Deep<<8},
			{0x198, s.Width}, {0x19c, s.Height}, {0x1a4, s.Layer}, {0x1a8, s.X}, {0x1ac, s.Y}, {0x1dc, uint32(c.SemVA >> 32)}, {0x1e0, uint32(c.SemVA)}, {0x1e4, c.Payload}}) {
			require.Equal(t, Done, h.Method(r.env, class, w[0], w[1]), "%x", w)
		}
		launch := bitAt(s.Linear, 0) | bitAt(c.Sem != 0, 5) | bitAt(c.Interrupt, 8) | bitAt(c.Sem == 1, 12)
		r.finish(h.Method(r.env, class, 0x1b0, launch), h.Step, &h.Fault)
		r.upload(&h, class, 0x1b4, &h.Fault, &c)
		r.compare()
		require.Len(t, r.events, int(bitAt(c.Interrupt, 0)))
	})
}

// naiveReduction is the definition in numbers of any size; ok is false where there is none.
func naiveReduction(op int, v, p uint64, bits uint, unsigned bool) (_ uint64, ok bool) {
	number := func(x uint64) *big.Int {
		n := new(big.Int).SetUint64(x & (1<<bits - 1))
		if !unsigned && n.Bit(int(bits)-1) != 0 {
			n.Sub(n, new(big.Int).Lsh(big.NewInt(1), bits))
		}
		return n
	}
	a, b := number(v), number(p)
	r := new(big.Int)
	switch op {
	case 0, 1:
		if r = a; (a.Cmp(b) > 0) == (op == 0) {
			r = b
		}
	case 2:
		r.Xor(a, b)
	case 3:
		r.And(a, b)
	case 4:
		r.Or(a, b)
	case 5:
		r.Add(a, b)
		ok = bits == 32 || unsigned
		return new(big.Int).Mod(r, new(big.Int).Lsh(big.NewInt(1), bits)).Uint64(), ok
	case 6:
		if ok = bits == 32 && unsigned; a.Cmp(b) < 0 {
			r.Add(a, big.NewInt(1))
		}
		return r.Uint64(), ok
	case 7:
		ok = bits == 32 && unsigned
		if r.Sub(a, big.NewInt(1)); a.Sign() == 0 || a.Cmp(b) > 0 {
			r = b
		}
		return r.Uint64() & 0xffffffff, ok
	default:
		return 0, false
	}
	return new(big.Int).Mod(r, new(big.Int).Lsh(big.NewInt(1), bits)).Uint64(), true
}

// TestC8B5Semaphore: every reduction, and releases of both sizes, with and without the time.
func TestC8B5Semaphore(t *testing.T) {
	values := []uint64{0, 1, 6, 0x7fffffff, 0x80000000, 0xffffffff, 0x7fffffff_ffffffff, 0x80000000_00000000, ^uint64(0), 0x12345678_9abcdef0}
	m := newTestMemory()
	env := newEnv(m)
	var h HopperCopy
	for n := range 17 * 8 * 3 * len(values) * len(values) {
		v, p, op, flags := values[n%len(values)], values[n/10%len(values)], n/100%17-1, n/1700
		wide, unsigned, timed, rest := flags&1 != 0, flags&2 != 0, flags&4 != 0, uint64(0xdddddddddddddddd)
		va := semBase + uint64(flags>>3*4) // aligned to 16, 4 and 8 bytes
		for i := range uint64(8) {
			m.store(va+i, byte(v>>(8*i)))
			m.store(va+8+i, byte(rest>>(8*i)))
		}
		bits := uint(32)
		if wide {
			bits = 64
		}
		want, legal := p&(1<<bits-1), true
		if op >= 0 {
			want, legal = naiveReduction(op, v, p, bits, unsigned)
		}
		if !wide {
			want |= v >> 32 << 32
		}
		align := uint64(bits) / 8
		launch := 1<<3 | bitAt(op >= 0, 19) | uint32(max(op, 0))<<14 | bitAt(unsigned, 18) | bitAt(wide, 27)
		if timed {
			align, rest, launch = 16, testNow, launch+(1<<3)
			if !wide {
				want &= 0xffffffff
			}
		}
		h.sendTo(t, env, writes{{0x240, uint32(va >> 32)}, {0x244, uint32(va)}, {0x248, uint32(p)}, {0x24c, uint32(p >> 32)}})
		if o := h.Method(env, 0xc8b5, 0x300, launch); !legal || va%align != 0 {
			require.Equal(t, Illegal, o)
			require.Equal(t, Refusal{0xc8b5, BadEnum, 0x300, launch}, h.Refusal)
			continue
		}
		got := [2]uint64{uint64(m.word(va)) | uint64(m.word(va+4))<<32, uint64(m.word(va+8)) | uint64(m.word(va+12))<<32}
		require.Equal(t, [2]uint64{want, rest}, got, "operation %d of %x and %x, launch %x", op, v, p, launch)
	}
}

func (h *HopperCopy) sendTo(t require.TestingT, env *Env, list writes) {
	for _, w := range list {
		require.Equal(t, Done, h.Method(env, 0xc8b5, w[0], w[1]))
	}
}

// TestHopperRefusals: what the card cannot do reaches no memory, and is counted. Package soft tests the texts.
func TestHopperRefusals(t *testing.T) {
	m := newTestMemory()
	env := newEnv(m)
	var h Hopper
	for _, w := range [][3]uint32{{0xcb97, 0x0d78, 3}, {0xcb97, 0x1b0c, 1}, {0xcbc0, 0x02c0, 10}, {0x902d, 0x08dc, 0}, {0xa140, 0x01b0, 3}, {0xa140, 0x0300, 0}, {0x9097, 0x0300, 0}} {
		require.Equal(t, Illegal, h.Graphics.Method(env, uint16(w[0]), w[1], w[2]), "%x", w)
	}
	for _, launch := range []uint32{3, 2 | 1<<12, 2 | 1<<13, 3 << 3, 2 | 1<<20, 2 | 1<<23, 2 | 1<<28} {
		require.Equal(t, Illegal, h.Copy.Method(env, 0xc8b5, 0x300, launch), "%x", launch)
	}
	require.Len(t, env.Stats.NotExecuted(), 4)
	require.Zero(t, m.calls)

	macro := func(n uint32) Outcome { return h.Graphics.Method(env, 0xcb97, mmeMacro+8*n, 0) }
	h.Graphics.Released() // before the first macro
	require.Equal(t, []Outcome{Done, Done}, []Outcome{macro(3), macro(100)})
	h.Graphics.Released()
	require.Equal(t, []Outcome{Done, Illegal, Done}, []Outcome{macro(3), macro(4), macro(100)}, "one that set nothing up draws")
}
