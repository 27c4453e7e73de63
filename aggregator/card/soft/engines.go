package soft

import (
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// engineSlot serializes an engine's channels.
//
// trapped is set inside a call, under mu, and checked under mu: after a refused method no
// other call enters. It is cleared without mu, so that a trap never waits for a call.
type engineSlot struct {
	mu      sync.Mutex
	user    atomic.Int32            // number plus one of the channel being served, 0 = idle
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

// enter takes an engine for one call. It returns false, and ends the step, if the engine is
// trapped.
func (x *run) enter(e uint8) bool {
	l := &x.card.engines[e]
	if !l.mu.TryLock() {
		x.stopClock()
		l.mu.Lock()
		x.startClock()
	}
	x.serves(e)
	if l.trapped.Load() {
		l.mu.Unlock()
		x.verdict, x.stuck = stalled, e
		return false
	}
	l.user.Store(int32(x.id) + 1)
	l.last.Store(x.channel)
	x.slot = l
	return true
}

func (x *run) leave() {
	x.slot.user.Store(0)
	x.slot.mu.Unlock()
	x.slot = nil
}

// engineMethod hands a method to the object's engine.
func (x *run) engineMethod(o *object, subch uint8, method uint16, data uint32) {
	if x.card.cfg.DisableEngines {
		return
	}
	if !x.enter(o.engine) {
		x.channel.held = heldMethod{valid: true, subch: subch, method: method, data: data}
		return
	}
	var out engine.Outcome
	if o.engine == gf100.EngineGR {
		out = x.gr.Method(&x.env, o.class, uint32(method), data)
	} else {
		out = x.copyEngine(o.engine).Method(&x.env, uint32(method), data)
	}
	if out == engine.Illegal {
		x.refused(o.engine, subch)
	}
	x.leave()
	x.outcome(o.engine, out)
}

// inline passes several words of a non-increasing packet to the engine in one call. It
// returns the number of bytes consumed; after 0 the words are sent one by one.
func (x *run) inline(words []byte) int {
	p := &x.packet
	o := &x.objects[p.subch]
	if p.method < firstEngineMethod || !o.bound || o.engine != gf100.EngineGR || x.subMask&1 == 0 || x.card.cfg.DisableEngines {
		return 0
	}
	if x.card.engines[o.engine].trapped.Load() || !x.enter(o.engine) {
		x.verdict = more // the single word stalls
		return 0
	}
	n, out := x.gr.Inline(&x.env, o.class, uint32(p.method), words)
	x.leave()
	x.card.stats.Methods.Add(uint64(n / 4))
	if out != engine.Illegal { // the refused word is retried alone
		x.outcome(o.engine, out)
	}
	return n
}

// stepEngine continues an engine's current operation.
func (x *run) stepEngine() {
	e := uint8(x.pending)
	if !x.enter(e) {
		return
	}
	x.pending = -1
	var out engine.Outcome
	if e == gf100.EngineGR {
		out = x.gr.Step(&x.env)
	} else {
		out = x.copyEngine(e).Step(&x.env)
	}
	x.leave()
	x.outcome(e, out)
}

func (x *run) outcome(e uint8, out engine.Outcome) {
	switch out {
	case engine.Busy:
		x.pending = int8(e)
		if e == gf100.EngineGR && x.gr.Waiting() {
			x.verdict = blocked
		}
	case engine.Faulted:
		x.pending = int8(e)
		x.fail(gf100.EngineClients[e], x.vm.fault)
	}
}

func (x *run) copyEngine(e uint8) *engine.CE { return &x.ce[e-gf100.EngineCE0] }

// trap is a method that an engine refused.
type trap struct {
	due     bool
	subch   uint8
	refusal engine.Refusal
}

// refused traps the engine. The method counts as executed: when the driver resumes the
// engine, the channel continues after it.
func (x *run) refused(e, subch uint8) {
	r := x.gr.Refusal
	if e != gf100.EngineGR {
		r = x.copyEngine(e).Refusal
	}
	x.card.stats.EngineErrors.Add(1)
	x.slot.trapped.Store(true)
	x.verdict, x.stuck, x.trap = stalled, e, trap{due: true, subch: subch, refusal: r}
}

// illegalClass is the graphics engine's refusal of a SET_OBJECT.
func (x *run) illegalClass(subch uint8, data uint32) {
	if !x.enter(gf100.EngineGR) {
		x.channel.held = heldMethod{valid: true, subch: subch, data: data}
		return
	}
	x.gr.Refusal = engine.Refusal{Class: uint16(data), Reason: engine.NoClass, Data: data}
	x.refused(gf100.EngineGR, subch)
	x.leave()
}

// raise reports a trap to the driver. Card.mu is held.
func (c *Card) raise(ch *channel, s *step) {
	r := &s.trap.refusal
	if s.stuck == gf100.EngineGR {
		t := gf100.GraphTrap{
			Inst: ch.inst, Subchannel: s.trap.subch, Class: r.Class, Method: r.Method, Data: r.Data,
			Intr: gf100.GraphIntrIllegalMthd,
		}
		if r.Reason == engine.NoClass {
			t.Intr = gf100.GraphIntrIllegalClass
		} else if t.DataError = r.Reason.GRDataError(); t.DataError != 0 {
			t.Intr = gf100.GraphIntrDataError
		}
		c.face.RaiseGraph(t)
		return
	}
	c.face.RaiseCopy(gf100.CopyTrap{
		Engine: int(s.stuck - gf100.EngineCE0), Inst: ch.inst, Subchannel: s.trap.subch,
		Method: r.Method, Data: r.Data, Status: r.Reason.CEStatus(),
	})
}

// stall parks a channel whose engine is trapped.
func (f *fifo) stall(ch *channel, e uint8) {
	if !f.card.engines[e].trapped.Load() { // resumed in between
		f.schedule(int(ch.id))
		return
	}
	ch.state, ch.engine = stateStalled, e
}

// resumeEngine resumes an engine and the channels that it stalled.
func (c *Card) resumeEngine(e uint8) {
	if !c.engines[e].trapped.Swap(false) {
		return
	}
	for i := range c.fifo.slots {
		if ch := c.fifo.slots[i].ch; ch != nil && ch.state == stateStalled && ch.engine == e {
			ch.state = stateIdle
			c.fifo.schedule(i)
		}
	}
}
