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
	n, o := min(len(data), env.words()), Done
	fit := 0
	if offset < size {
		fit = int(min(uint64(n), (size-offset)&^3))
	}
	switch {
	case v[renderControl]&1 != 0 && g.skipped(c):
	case fit == 0:
		st.Dropped.Add(uint64(n / 4))
	default:
		n, o = g.storeConstants(env, c, address(v[constUpper], v[constLower])+offset, data[:fit])
		st.InlineWords.Add(uint64(n / 4))
	}
	v[constOffset] += uint32(n)
	return n, o
}

// storeConstants writes words, and reports how many bytes it took. A word that faults is among them.
func (g *GR) storeConstants(env *Env, c *Class, va uint64, data []byte) (int, Outcome) {
	for done := 0; done < len(data); {
		mem, fault := env.fetch(va+uint64(done), uint64(len(data)-done), true)
		if fault != nil {
			word := done &^ 3
			g.Op = c.op(OpConstant)
			g.Op.Release = newRelease(va+uint64(word), true, binary.LittleEndian.Uint32(data[word:]))
			g.Op.Release.HeadPos = uint8(done & 3)
			return word + 4, g.faulted(env, fault)
		}
		done += copy(mem, data[done:])
	}
	return len(data), Done
}
