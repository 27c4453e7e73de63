package soft

import (
	"slices"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// engineSlot serializes an engine's channels. A channel has the engine from its first call to the
// end of its turn. A step never waits for an engine: the channel leaves its PBDMA and gets the
// engine when it is free, see fifo.await. user is set by a PBDMA that finds it zero, and cleared
// or passed on under Card.mu.
//
// trapped is set and checked by the channel that has the engine: after a refused method no
// other call enters. It is cleared at any time, so that a trap never waits for a step.
type engineSlot struct {
	user    atomic.Int32            // number plus one of the channel that has it, 0 = idle
	last    atomic.Pointer[channel] // the last one served; it may have ended
	trapped atomic.Bool             // stopped until the driver resumes it
}

// status is what NV_PFIFO_ENGINE_STATUS reads.
func (l *engineSlot) status() uint32 {
	if user := l.user.Load(); user != 0 {
		return gf100.EngineBusy | uint32(user-1)
	}
	return 0
}

// enter begins a call of an engine. It returns false, and ends the step, if the engine serves
// another channel or is trapped.
func (x *run) enter(e uint8) bool {
	l := &x.card.engines[e]
	if x.has&(1<<e) == 0 {
		if !l.user.CompareAndSwap(0, int32(x.ID)+1) {
			x.verdict, x.stuck = contended, e
			return false
		}
		x.has |= 1 << e
	}
	if x.serving != int8(e) {
		x.serves(e)
		l.last.Store(x.channel)
	}
	if l.trapped.Load() {
		x.verdict, x.stuck = stalled, e
		return false
	}
	x.serving, x.calling = int8(e), true
	return true
}

// engineMethod hands a method to the object's engine.
func (x *run) engineMethod(o *object, subch uint8, method uint16, data uint32) {
	if x.card.cfg.DisableEngines {
		return
	}
	if !x.enter(o.Engine) {
		x.channel.Held = heldMethod{Valid: true, Subch: subch, Method: method, Data: data}
		return
	}
	out := x.units[o.Engine].Method(&x.env, o.Class, uint32(method), data)
	x.calling = false
	if out == engine.Illegal {
		x.refused(o.Engine, subch)
	}
	x.outcome(o.Engine, out)
}

// inline passes several words of a non-increasing packet to the engine in one call. It
// returns the number of bytes consumed; after 0 the words are sent one by one.
func (x *run) inline(words []byte) int {
	p := &x.Packet
	o := &x.Objects[p.Subch]
	if p.Method < firstEngineMethod || !o.Bound || o.Engine != gf100.EngineGR || x.SubMask&1 == 0 || x.card.cfg.DisableEngines {
		return 0
	}
	if !x.enter(o.Engine) {
		x.verdict = more // the single word stalls
		return 0
	}
	n, out := x.units[o.Engine].Inline(&x.env, o.Class, uint32(p.Method), words)
	x.calling = false
	x.card.stats.Methods.Add(uint64(n / 4))
	if out == engine.Illegal {
		x.refused(o.Engine, p.Subch)
	}
	x.outcome(o.Engine, out)
	return n
}

// stepEngine continues an engine's current operation.
func (x *run) stepEngine() {
	e := uint8(x.Pending)
	if !x.enter(e) {
		return
	}
	x.Pending = -1
	out := x.units[e].Step(&x.env)
	x.calling = false
	if out == engine.Illegal { // a method that a macro sent
		x.refused(e, x.subchannelOf(x.GR.Refusal.Class))
	}
	x.outcome(e, out)
}

// subchannelOf finds where a class is bound, for a report.
func (x *run) subchannelOf(class uint16) uint8 {
	for i := range x.Objects {
		if o := &x.Objects[i]; o.Bound && o.Class == class {
			return uint8(i)
		}
	}
	return 0
}

func (x *run) outcome(e uint8, out engine.Outcome) {
	switch out {
	case engine.Busy:
		x.Pending = int8(e)
		if x.units[e].Waiting() {
			x.verdict = blocked
		}
	case engine.Faulted:
		x.Pending = int8(e)
		unit := gf100.EngineClients[e]
		if e == gf100.EngineGR && x.GR.Op.Kind == engine.OpGrid {
			unit = gf100.ClientTEX
		}
		fault, _ := x.units[e].Stopped()
		x.fail(unit, fault)
	}
}

// unit is a channel's context on an engine, as package engine has it.
type unit interface {
	Method(env *engine.Env, class uint16, method, data uint32) engine.Outcome
	Inline(env *engine.Env, class uint16, method uint32, words []byte) (int, engine.Outcome)
	Step(*engine.Env) engine.Outcome
	// Waiting reports whether only a change of memory can end the work that is left.
	Waiting() bool
	// Stopped returns where the last call that answered Faulted stopped, and what was Illegal.
	Stopped() (engine.Fault, engine.Refusal)
}

// copyUnit is a copy engine's context, which knows its class.
type copyUnit struct{ *engine.CE }

func (u copyUnit) Method(env *engine.Env, _ uint16, method, data uint32) engine.Outcome {
	return u.CE.Method(env, method, data)
}

func (x *run) copyEngine(e uint8) *engine.CE { return &x.CE[e-gf100.EngineCE0] }

// trap is a method that an engine refused.
type trap struct {
	due     bool
	subch   uint8
	refusal engine.Refusal
	mp      gf100.MPError
}

// refused traps the engine. The method counts as executed: when the driver resumes the
// engine, the channel continues after it.
func (x *run) refused(e, subch uint8) {
	_, r := x.units[e].Stopped()
	x.card.stats.EngineErrors.Add(1)
	if x.direct != nil {
		x.stop(refusalFault(e, subch, r))
		return
	}
	x.card.engines[e].trapped.Store(true)
	x.verdict, x.stuck, x.trap = stalled, e, trap{due: true, subch: subch, refusal: r, mp: x.GR.ProgramError}
}

// programFault notes what a program did, for the trap or fault that follows.
func (x *run) programFault(err error) {
	text := err.Error()
	x.said = text
	x.card.stats.NoteProgram(text)
	if x.card.cfg.ProgramFault != nil {
		x.card.cfg.ProgramFault(err)
	}
}

// ProgramReport implements card.Registers.
func (c *Card) ProgramReport(channel uint32) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if int(channel) >= len(c.fifo.channels) || c.fifo.channels[channel] == nil {
		return ""
	}
	return c.fifo.channels[channel].programReport
}

// illegalClass is the graphics engine's refusal of a SET_OBJECT.
func (x *run) illegalClass(subch uint8, data uint32) {
	if !x.enter(gf100.EngineGR) {
		x.channel.Held = heldMethod{Valid: true, Subch: subch, Data: data}
		return
	}
	x.GR.Refusal = engine.Refusal{Class: uint16(data), Reason: engine.NoClass, Data: data}
	x.refused(gf100.EngineGR, subch)
}

// raise reports a trap to the driver. Card.mu is held.
func (c *Card) raise(ch *channel, s *step) {
	r := &s.trap.refusal
	if s.stuck == gf100.EngineGR {
		t := gf100.GraphTrap{
			Inst: ch.Inst, Subchannel: s.trap.subch, Class: r.Class, Method: r.Method, Data: r.Data,
			Intr: gf100.GraphIntrIllegalMthd,
		}
		if r.Reason == engine.NoClass {
			t.Intr = gf100.GraphIntrIllegalClass
		} else if r.Reason == engine.BadProgram {
			t.Intr, t.MP, ch.programReport = gf100.GraphIntrTrap, s.trap.mp, s.said
		} else if t.DataError = r.Reason.GRDataError(); t.DataError != 0 {
			t.Intr = gf100.GraphIntrDataError
		}
		c.face.RaiseGraph(t)
		return
	}
	c.face.RaiseCopy(gf100.CopyTrap{
		Engine: int(s.stuck - gf100.EngineCE0), Inst: ch.Inst, Subchannel: s.trap.subch,
		Method: r.Method, Data: r.Data, Status: r.Reason.CEStatus(),
	})
}

// stall parks a channel whose engine is trapped.
func (f *fifo) stall(ch *channel, e uint8) {
	if !f.card.engines[e].trapped.Load() { // resumed in between
		f.schedule(int(ch.ID))
		return
	}
	ch.State, ch.Engine = stateStalled, e
}

// resumeEngine resumes an engine and the channels that it stalled.
func (c *Card) resumeEngine(e uint8) {
	if !c.engines[e].trapped.Swap(false) {
		return
	}
	for i := range c.fifo.channels {
		if ch := c.fifo.channels[i]; ch != nil && ch.State == stateStalled && ch.Engine == e {
			ch.State = stateIdle
			c.fifo.schedule(i)
		}
	}
}

// await parks a channel whose engine serves another one. Channels get the engine in order.
func (f *fifo) await(ch *channel, e uint8) {
	if f.card.engines[e].user.Load() == 0 { // left in between
		f.schedule(int(ch.ID))
		return
	}
	if f.mayRun(int(ch.ID)) {
		ch.State, ch.Engine = stateContended, e
		f.Waiters[e] = append(f.Waiters[e], ch.ID)
	}
}

// unawait takes a channel off an engine's list.
func (f *fifo) unawait(ch *channel) {
	w := f.Waiters[ch.Engine]
	f.Waiters[ch.Engine] = slices.DeleteFunc(w, func(id uint8) bool { return id == ch.ID })
}

// release takes engines from the channel that has them, and gives each to the next one.
func (f *fifo) release(engines uint8) {
	for e := range f.Waiters {
		if engines>>e&1 == 0 {
			continue
		}
		l, w := &f.card.engines[e], f.Waiters[e]
		if len(w) == 0 {
			l.user.Store(0)
			continue
		}
		ch := f.channels[w[0]]
		f.Waiters[e] = w[:copy(w, w[1:])]
		ch.Has = 1 << e
		l.user.Store(int32(ch.ID) + 1)
		f.queue(ch)
	}
}
