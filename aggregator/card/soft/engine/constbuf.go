package engine

import "encoding/binary"

// Methods of the constant-buffer selector, alike in 9097 and 90c0, as places in
// GR.Values.
const (
	constSize   = 0x2380 / 4
	constUpper  = 0x2384 / 4
	constLower  = 0x2388 / 4
	constOffset = 0x238c / 4

	// renderControl's bit 0 says that loads obey SET_RENDER_ENABLE.
	renderControl = 0x30c / 4
)

// loadConstants writes words, at least one, to the selected constant buffer and
// moves the offset on. Words that do not lie inside the buffer's size are
// dropped and counted.
func loadConstants(g *GR, env *Env, c *Class, data []byte) (int, Outcome) {
	v := &g.Values[c.place]
	st := &env.Stats.class[c.place]
	size, offset := uint64(v[constSize]), uint64(v[constOffset])
	n := min(len(data), env.words())
	if v[renderControl]&1 != 0 && g.skipped(c) {
		v[constOffset] += uint32(n)
		return n, Done
	}
	fit := 0
	if offset < size {
		fit = int(min(uint64(n), (size-offset)&^3))
	}
	if fit == 0 {
		st.Dropped.Add(uint64(n / 4))
		v[constOffset] += uint32(n)
		return n, Done
	}
	n = fit
	va := address(v[constUpper], v[constLower]) + offset
	for done := 0; done < n; {
		mem, fault := env.fetch(va+uint64(done), uint64(n-done), true)
		if fault != nil {
			n = done&^3 + 4
			g.Op = c.op(OpConstant)
			g.Op.Release = newRelease(va+uint64(n-4), 1, binary.LittleEndian.Uint32(data[n-4:]), 0)
			g.Op.Release.HeadPos = uint8(done & 3)
			st.InlineWords.Add(uint64(n / 4))
			v[constOffset] += uint32(n)
			return n, g.faulted(env, fault)
		}
		done += copy(mem, data[done:n])
	}
	st.InlineWords.Add(uint64(n / 4))
	v[constOffset] += uint32(n)
	return n, Done
}
