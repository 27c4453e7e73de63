package engine

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// m2mfWrites are the methods that describe a case, without the launch.
func m2mfWrites(c *copyCase) writes {
	side := func(s *surfaceCase, block, upper, pitch, x uint32) writes {
		return writes{
			{block, s.High<<4 | s.Deep<<8}, {block + 4, s.Width}, {block + 8, s.Height}, {block + 0xc, 1}, {block + 0x10, s.Layer},
			{upper, uint32(s.VA >> 32)}, {upper + 4, uint32(s.VA)}, {pitch, s.Pitch}, {x, s.X}, {x + 4, s.Y},
		}
	}
	list := append(side(&c.Src, 0x204, 0x30c, 0x314, 0x344), side(&c.Dst, 0x220, 0x238, 0x318, 0x34c)...)
	return append(list, writes{{0x31c, c.Length}, {0x320, c.Lines}, {0x32c, uint32(c.SemVA >> 32)}, {0x330, uint32(c.SemVA)}, {0x334, c.Payload}}...)
}

func m2mfLaunch(c *copyCase) uint32 {
	var l uint32
	if c.Inline != nil {
		l |= 1
	}
	if c.Src.Linear {
		l |= 1 << 4
	}
	if c.Dst.Linear {
		l |= 1 << 8
	}
	if c.Sem != 0 {
		l |= 2 << 12
	}
	if c.Sem == 1 {
		l |= 1 << 20
	}
	if c.Interrupt {
		l |= 1 << 16
	}
	return l
}

// checkM2MF runs a copy and holds everything it did against the twin.
func checkM2MF(t require.TestingT, g *GR, c copyCase) {
	want := m2mfModel(&c)
	r := newRig(t, &c, want)
	for _, w := range m2mfWrites(&c) {
		require.Equal(t, Done, g.Method(r.env, 0x9039, w[0], w[1]))
	}
	r.finish(g.Method(r.env, 0x9039, 0x300, m2mfLaunch(&c)), g.Step, &g.Fault)
	if c.Inline != nil {
		r.upload(g, 0x9039, 0x304, &g.Fault, &c)
	}
	r.compare()
	st := r.env.Stats.Class(0x9039)
	require.EqualValues(t, want.bytes, st.Bytes.Load())
	require.EqualValues(t, 1, st.Launches.Load())
	require.EqualValues(t, r.faults, st.Faults.Load())
	require.EqualValues(t, min(c.Sem, 1), st.Semaphores.Load())
	require.Zero(t, st.Dropped.Load())
	if c.Interrupt {
		require.Equal(t, []Event{{0x9039, EventInterrupt}}, r.events)
	} else {
		require.Empty(t, r.events)
	}
}

// uploader is a context that takes inline data.
type uploader interface {
	Method(env *Env, class uint16, method, data uint32) Outcome
	Inline(env *Env, class uint16, method uint32, data []byte) (int, Outcome)
	Step(env *Env) Outcome
}

// upload delivers inline data, some of it word by word, some in runs.
func (r *rig) upload(g uploader, class uint16, method uint32, fault *Fault, c *copyCase) {
	data := append([]byte(nil), c.Inline...)
	for len(data)%4 != 0 {
		data = append(data, 0xee)
	}
	for k := 0; len(data) > 0; k++ {
		if n := len(data); k%3 == 0 {
			r.finish(g.Method(r.env, class, method, binary.LittleEndian.Uint32(data)), g.Step, fault)
			data = data[4:]
		} else {
			taken, o := g.Inline(r.env, class, method, data[:min(n, k*52)])
			require.NotZero(r.t, taken)
			r.finish(o, g.Step, fault)
			data = data[taken:]
		}
	}
}

func ceWrites(c *copyCase) (writes, uint32) {
	side := func(s *surfaceCase, tile, high, pitch uint32) writes {
		mode := s.High<<4 | s.Deep<<8
		if s.Narrow {
			mode |= 0xe
		}
		return writes{{tile, mode}, {tile + 4, s.Width}, {tile + 8, s.Height}, {tile + 0xc, 1}, {tile + 0x10, s.Layer}, {tile + 0x14, s.X}, {tile + 0x18, s.Y},
			{high, uint32(s.VA >> 32)}, {high + 4, uint32(s.VA)}, {pitch, s.Pitch}}
	}
	list := append(side(&c.Src, 0x200, 0x30c, 0x31c), side(&c.Dst, 0x220, 0x314, 0x320)...)
	list = append(list, writes{{0x324, c.Length}, {0x328, c.Lines}, {0x32c, c.Format}, {0x330, c.Const[0]}, {0x334, c.Const[1]},
		{0x338, uint32(c.SemVA >> 32)}, {0x33c, uint32(c.SemVA)}, {0x340, c.Payload}}...)
	var exec uint32
	if c.Remap {
		exec |= 1
	}
	if c.Src.Linear {
		exec |= 1 << 4
	}
	if c.Dst.Linear {
		exec |= 1 << 8
	}
	if c.Sem != 0 {
		exec |= 1 << 12
	}
	if c.Sem == 1 {
		exec |= 1 << 13
	}
	return list, exec
}

func checkCE(t require.TestingT, e *CE, c copyCase) {
	want := ceModel(&c)
	r := newRig(t, &c, want)
	list, exec := ceWrites(&c)
	for _, w := range list {
		require.Equal(t, Done, e.Method(r.env, w[0], w[1]))
	}
	r.finish(e.Method(r.env, 0x300, exec), e.Step, &e.Fault)
	r.compare()
	st := r.env.Stats.Class(0x90b5)
	require.EqualValues(t, want.bytes, st.Bytes.Load())
	require.EqualValues(t, r.faults, st.Faults.Load())
	require.EqualValues(t, min(c.Sem, 1), st.Semaphores.Load())
}

var copyCases = rapid.Custom(drawCopy)

var uploadCases = rapid.Custom(func(t *rapid.T) copyCase {
	c := drawCopy(t)
	c.Length = min(c.Length, 200)
	if c.Dst.Linear { // lines that overlap would be another order of the same bytes
		c.Dst.Pitch = max(c.Dst.Pitch, c.Length)
	}
	c.Dst.Width = max(c.Dst.Width, c.Dst.X+c.Length)
	c.Inline = make([]byte, c.Length*c.Lines)
	for i := range c.Inline {
		c.Inline[i] = ^pattern(uint64(i) + 0x777)
	}
	return c
})

var ceCases = rapid.Custom(func(t *rapid.T) copyCase {
	var c copyCase
	elemSrc, elemDst := uint64(1), uint64(1)
	if c.Remap = rapid.Bool().Draw(t, "remap"); c.Remap {
		c.Format = rapid.Uint32().Draw(t, "format") & 0x0333ffff
		bpc := uint64(c.Format>>16&3) + 1
		elemSrc, elemDst = bpc*(uint64(c.Format>>20&3)+1), bpc*(uint64(c.Format>>24&3)+1)
	}
	c.Const = [2]uint32{rapid.Uint32().Draw(t, "const0"), rapid.Uint32().Draw(t, "const1")}
	dstBase := rapid.SampledFrom([]uint64{0x20_0000_0000, vaMask + 1 - 0x4000}).Draw(t, "dst base")
	c.Src = drawSurface(t, "src", srcBase, true, elemSrc)
	c.Dst = drawSurface(t, "dst", dstBase, true, elemDst)
	c.Length = uint32(rapid.IntRange(0, 150).Draw(t, "xcnt"))
	c.Lines = uint32(rapid.IntRange(0, 40).Draw(t, "ycnt"))
	// The microcode gives a surface without width a stride of its own.
	c.Src.Width, c.Dst.Width = max(c.Src.Width, 1), max(c.Dst.Width, 1)
	c.around(t)
	return c
})

// injective makes the lines of the destination not overlap: which of two writes
// to a byte wins is unspecified.
func injective(c copyCase) copyCase {
	if c.Dst.Linear {
		c.Dst.Pitch = max(c.Dst.Pitch, c.Length*uint32(c.Dst.elem))
	} else {
		c.Dst.Width = max(c.Dst.Width, c.Dst.X+c.Length)
	}
	return c
}

func TestM2MFCopy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkM2MF(t, &GR{}, injective(copyCases.Draw(t, "case"))) })
}

func TestM2MFUpload(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkM2MF(t, &GR{}, uploadCases.Draw(t, "case")) })
}

func TestCECopy(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) { checkCE(t, &CE{}, injective(ceCases.Draw(t, "case"))) })
}
