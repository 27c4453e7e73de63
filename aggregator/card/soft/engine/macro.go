package engine

import "github.com/umbra-gpu/umbra/aggregator/card/soft/engine/mme"

// Macro is a call of a macro that has not ended.
type Macro struct {
	mme.Run
	Class uint16 // whose methods it sends
	Place uint8  // of the class in GR.Values and in Stats
	// Waiting for a parameter: every other method is refused.
	Waiting bool
}

// costInstruction is what an instruction is charged, see Meter.
const costInstruction = 128

const (
	macroFirst = 0x3800 // the calls, and each call's parameters
	macroData4 = 1 << 2 // in the number of a parameter's method
)

func isMacroData(method uint32) bool { return method >= macroFirst && method&macroData4 != 0 }

// callMacro starts a macro. Method then runs it.
func callMacro(g *GR, env *Env, c call) Outcome {
	if g.Macro.Active { // it called another one
		return g.macroError(env, c.class.ID, c.class.place, c.method, c.data)
	}
	g.Macro = Macro{Class: c.class.ID, Place: uint8(c.class.place)}
	g.Macro.Begin(&g.MME, (c.method-macroFirst)/8, c.data)
	return Done
}

// macroData passes a parameter on.
func macroData(g *GR, env *Env, c call) Outcome {
	if !g.Macro.Waiting || g.Macro.Class != c.class.ID {
		return g.macroError(env, c.class.ID, c.class.place, c.method, c.data)
	}
	g.Macro.Param, g.Macro.HasParam, g.Macro.Waiting = c.data, true, false
	return Done
}

// runMacro executes instructions until the macro ends, waits, or has sent a method that is not
// carried out at once.
func (g *GR) runMacro(env *Env) Outcome {
	m := &g.Macro
	if !m.Active || m.Waiting {
		return Done
	}
	shadow := &g.Values[m.Place]
	for !env.Over() {
		env.Charge(costInstruction)
		pc := m.PC
		sent, state := m.Step(&g.MME, shadow)
		switch state {
		case mme.Waiting:
			m.Waiting = true
			return Done
		case mme.Broken:
			return g.macroError(env, m.Class, int(m.Place), pc*4, g.MME.Code[pc%mme.CodeWords])
		}
		if sent.Valid {
			m.Active = true // also for the last method: a call of a macro is refused
			o := g.execute(env, m.Class, sent.Method, sent.Data)
			m.Active = o != Illegal && state != mme.Ended
			if o != Done {
				return o
			}
		}
		if state == mme.Ended {
			return Done
		}
	}
	return Busy
}

// macroError ends a macro, and refuses the method that was at fault. For an instruction that
// is its place and the word.
func (g *GR) macroError(env *Env, class uint16, stat int, method, data uint32) Outcome {
	g.Macro = Macro{}
	return g.refuse(env, stat, Refusal{class, BadMacro, method, data})
}

// shadowTrack are the modes in which a macro reads what a method was last given.
const shadowTrack = 1

// shadowControl counts the modes that are not carried out: passing methods by the shadow, and
// replaying the shadow.
func shadowControl(g *GR, env *Env, c call) Outcome {
	if c.data <= shadowTrack {
		return Done
	}
	return notRun(g, env, c)
}
