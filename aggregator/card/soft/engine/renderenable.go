package engine

import "encoding/binary"

// Modes of SET_RENDER_ENABLE_C.
const (
	renderFalse = iota
	renderTrue
	renderConditional
	renderIfEqual
	renderIfNotEqual
)

// Modes of SET_RENDER_ENABLE_OVERRIDE.
const (
	overrideNone = iota
	overrideAlways
	overrideNever
)

func validRenderEnable(data uint32) bool { return data <= renderIfNotEqual }
func validOverride(data uint32) bool     { return data <= overrideNever }

// renderEnables are the places of SET_RENDER_ENABLE_A and SET_RENDER_ENABLE_OVERRIDE in GR.Values,
// by class.
var renderEnables = [grClassCount]struct{ address, override int }{
	place9039: {m2mfRenderA, m2mfOverride},
	place902d: {0x264 / 4, 0x2dc / 4},
	place9097: {0x1550 / 4, 0x1944 / 4},
	place90c0: {0x1550 / 4, 0x1944 / 4},
}

// skipped reports whether launches, clears and blits of a class are switched off.
func (g *GR) skipped(c *Class) bool {
	switch g.Values[c.place][renderEnables[c.place].override] {
	case overrideAlways:
		return false
	case overrideNever:
		return true
	}
	return g.RenderOff[c.place]
}

// setRenderEnable decides whether the launches that follow are carried out.
// The conditional modes read memory, once, now.
func setRenderEnable(g *GR, env *Env, c call) Outcome {
	g.RenderOff[c.class.place] = c.data == renderFalse
	if c.data <= renderTrue {
		return Done
	}
	g.Op = c.class.op(OpCondition)
	return g.work(env)
}

// evaluate reads the reports at SET_RENDER_ENABLE_A/B and compares them: a
// report is two words (payload and value) at 0; the one to compare with is at
// 16. CONDITIONAL asks for two words that are not zero.
func (g *GR) evaluate(env *Env) *Fault {
	class := g.Op.Stat
	v := g.Values[class][renderEnables[class].address:]
	va, mode, off := address(v[0], v[1]), v[2], &g.RenderOff[class]
	var have, with [8]byte
	if fault := read(env, va, have[:]); fault != nil {
		return fault
	}
	if mode != renderConditional {
		if fault := read(env, va+16, with[:]); fault != nil {
			return fault
		}
	}
	switch mode {
	case renderConditional:
		*off = binary.LittleEndian.Uint32(have[:]) == 0 || binary.LittleEndian.Uint32(have[4:]) == 0
	case renderIfEqual:
		*off = have != with
	case renderIfNotEqual:
		*off = have == with
	}
	g.Op.Kind = OpNone
	return nil
}
