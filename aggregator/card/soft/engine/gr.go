package engine

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine/mme"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// GR is one channel's context on the graphics engine. The zero value is the
// context after a reset. It is plain data: a copy of a GR is another context
// in the same state, so the state recorded at a golden build (ApplyDefault)
// is handed to a new channel by assignment.
type GR struct {
	// Values is the last data of each method, by class and method / 4.
	Values [grClassCount][methodSlots]uint32
	// MME is what was uploaded for the macro processor; the classes share it. Macro is the
	// call that has not ended.
	MME   mme.Memory
	Macro Macro
	// Compute is what was bound for programs.
	Compute Compute
	// Transfer is the work that is left, and the M2MF launch that waits for inline data.
	Transfer
	// RenderOff: launches, clears and blits of a class are to be skipped (SET_RENDER_ENABLE).
	RenderOff [grClassCount]bool

	// ProgramError is what the program did that was refused.
	ProgramError gf100.MPError
}

// Method carries out one method write. method is in bytes.
func (g *GR) Method(env *Env, class uint16, method, data uint32) Outcome {
	if !g.Idle() {
		return Busy
	}
	if g.Macro.Active && !isMacroData(method) {
		return g.macroError(env, class, int(g.Macro.Place), method, data) // it waits for a parameter
	}
	if o := g.execute(env, class, method, data); o != Done {
		return o
	}
	return g.runMacro(env)
}

// execute carries out a method of a channel or of a macro.
func (g *GR) execute(env *Env, class uint16, method, data uint32) Outcome {
	c := grClass(class)
	if c == nil {
		g.Refusal = Refusal{class, NoClass, method, data}
		return Illegal
	}
	row, reason := c.check(method, data)
	if reason != 0 {
		return g.refuse(env, c.place, Refusal{class, reason, method, data})
	}
	env.Stats.class[c.place].Methods.Add(1)
	g.Values[c.place][method/4] = data
	switch {
	case row.act != nil:
		return row.act(g, env, call{c, row, method, data})
	case row.bulk != nil:
		binary.LittleEndian.PutUint32(env.word[:], data)
		_, o := row.bulk(g, env, c, env.word[:])
		return o
	}
	return Done
}

// refuse notes why a method is not carried out, and counts it for the class at a place.
func (g *GR) refuse(env *Env, place int, r Refusal) Outcome {
	g.Refusal = r
	env.Stats.class[place].Illegal.Add(1)
	return Illegal
}

// Inline carries out a run of writes to one method (a non-increasing packet) whose data lie
// together as little-endian words. It reports the bytes taken, a multiple of 4; a rest of
// less than a word is ignored. After Done with fewer bytes than data has, call again with
// the rest. Busy, Faulted and Illegal include the word they belong to, which may have changed
// memory: after Busy and Faulted call Step first, and never send a word again.
//
// It is the same as Method word by word; M2MF inline data and constant-buffer
// data are moved in bulk.
func (g *GR) Inline(env *Env, class uint16, method uint32, data []byte) (int, Outcome) {
	if !g.Idle() {
		return 0, Busy
	}
	data = data[:len(data)&^3]
	if len(data) == 0 {
		return 0, Done
	}
	if c := grClass(class); c != nil && !g.Macro.Active {
		if row := c.lookup(method); row != nil && row.bulk != nil {
			n, o := row.bulk(g, env, c, data)
			env.Stats.class[c.place].Methods.Add(uint64(n / 4))
			g.Values[c.place][method/4] = binary.LittleEndian.Uint32(data[n-4:])
			return n, o
		}
	}
	for n := 0; n < len(data); n += 4 {
		env.Charge(CostWord)
		if o := g.Method(env, class, method, binary.LittleEndian.Uint32(data[n:])); o != Done || env.Over() {
			return n + 4, o
		}
	}
	return len(data), Done
}

// Step continues the work of a Method or Inline call.
func (g *GR) Step(env *Env) Outcome {
	if o := g.work(env); o != Done {
		return o
	}
	return g.runMacro(env)
}

// work continues the operation that is left.
func (g *GR) work(env *Env) Outcome {
	switch g.Op.Kind {
	case OpNone:
		return Done
	case OpGrid:
		return g.runGrid(env)
	case OpCondition:
		if fault := g.evaluate(env); fault != nil {
			return g.faulted(env, fault)
		}
	}
	return g.Transfer.work(env)
}

// Idle reports whether no work is left. An upload that waits for inline data is
// not work, nor is a macro that waits for a parameter.
func (g *GR) Idle() bool { return g.Op.Kind == OpNone && (!g.Macro.Active || g.Macro.Waiting) }

// Abort drops the remaining work, an upload that waits for data, and a macro.
func (g *GR) Abort() {
	g.Macro = Macro{}
	g.Op = Op{}
	g.Upload = Upload{}
}

// ApplyDefault stores data as the state of a method without carrying it out,
// as the host does while it builds the golden context. It takes methods that
// the class does not declare to channels; it reports whether there is such a
// class and method address.
func (g *GR) ApplyDefault(class uint16, method, data uint32) bool {
	c := grClass(class)
	if c == nil || method&3 != 0 || method/4 >= methodSlots {
		return false
	}
	g.Values[c.place][method/4] = data
	return true
}
