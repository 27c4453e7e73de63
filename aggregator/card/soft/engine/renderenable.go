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

// skipped reports whether M2MF launches are switched off.
func (g *GR) skipped() bool {
	switch g.Values[index9039][m2mfOverride] {
	case overrideAlways:
		return false
	case overrideNever:
		return true
	}
	return g.RenderOff
}

// setRenderEnable decides whether the launches that follow are carried out.
// The conditional modes read memory, once, now.
func setRenderEnable(g *GR, env *Env, c call) Outcome {
	g.RenderOff = c.data == renderFalse
	if c.data <= renderTrue {
		return Done
	}
	g.Op = Op{Kind: OpCondition, Class: c.class.ID, Stat: uint8(c.class.stat)}
	return g.work(env)
}

// evaluate reads the reports at SET_RENDER_ENABLE_A/B and compares them: a
// report is two words (payload and value) at 0; the one to compare with is at
// 16. CONDITIONAL asks for two words that are not zero.
func (g *GR) evaluate(env *Env) *Fault {
	v := &g.Values[index9039]
	va := address(v[m2mfRenderA], v[m2mfRenderB])
	var have, with [8]byte
	if fault := read(env, va, have[:]); fault != nil {
		return fault
	}
	mode := v[renderMode]
	if mode != renderConditional {
		if fault := read(env, va+16, with[:]); fault != nil {
			return fault
		}
	}
	switch mode {
	case renderConditional:
		g.RenderOff = binary.LittleEndian.Uint32(have[:]) == 0 || binary.LittleEndian.Uint32(have[4:]) == 0
	case renderIfEqual:
		g.RenderOff = have != with
	case renderIfNotEqual:
		g.RenderOff = have == with
	}
	g.Op.Kind = OpNone
	return nil
}

// renderMode is SET_RENDER_ENABLE_C in GR.Values.
const renderMode = 0x340 / 4
