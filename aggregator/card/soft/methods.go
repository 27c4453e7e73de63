package soft

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// firstEngineMethod is where an object's own methods begin; those below are the
// host's.
const firstEngineMethod = 0x100

// method executes one method, unless the sub-device mask leaves this card out.
func (x *run) method(subch uint8, method uint16, data uint32) {
	if x.subMask&1 == 0 {
		return
	}
	x.card.stats.Methods.Add(1)
	if method < firstEngineMethod {
		x.hostMethod(subch, method, data)
		return
	}
	o := &x.objects[subch]
	switch {
	case !o.bound || o.engine == engineSoftware:
		x.hold(heldMethod{subch: subch, method: method, data: data, intr: gf100.PBDMAIntrEmptySubch})
	default:
		x.engineMethod(o, subch, method, data)
	}
}

// engineMethod hands a method to the object's engine.
func (x *run) engineMethod(o *object, subch uint8, method uint16, data uint32) {
	if x.card.cfg.DisableEngines {
		return
	}
	x.enter(o.engine)
	var out engine.Outcome
	if o.engine == gf100.EngineGR {
		out = x.gr.Method(&x.env, o.class, uint32(method), data)
	} else {
		out = x.copyEngine(o.engine).Method(&x.env, uint32(method), data)
	}
	x.leave()
	x.outcome(o.engine, out, heldMethod{subch: subch, method: method, data: data})
}

// inline hands several words of a non-increasing packet to the engine at once.
// It returns the bytes it took; 0 sends the words one by one.
func (x *run) inline(words []byte) int {
	p := &x.packet
	o := &x.objects[p.subch]
	if p.method < firstEngineMethod || !o.bound || o.engine != gf100.EngineGR || x.subMask&1 == 0 || x.card.cfg.DisableEngines {
		return 0
	}
	x.enter(o.engine)
	n, out := x.gr.Inline(&x.env, o.class, uint32(p.method), words)
	x.leave()
	if out == engine.Illegal {
		return n // the word that was refused comes again by itself, and is reported
	}
	x.card.stats.Methods.Add(uint64(n / 4))
	x.outcome(o.engine, out, heldMethod{})
	return n
}

// stepEngine goes on with an operation that an engine has under way.
func (x *run) stepEngine() {
	e := uint8(x.pending)
	x.pending = -1
	x.enter(e)
	var out engine.Outcome
	if e == gf100.EngineGR {
		out = x.gr.Step(&x.env)
	} else {
		out = x.copyEngine(e).Step(&x.env)
	}
	x.leave()
	x.outcome(e, out, heldMethod{})
}

func (x *run) outcome(e uint8, out engine.Outcome, h heldMethod) {
	switch out {
	case engine.Busy:
		x.pending = int8(e)
		if e == gf100.EngineGR && x.gr.Waiting() {
			x.verdict = blocked
		}
	case engine.Faulted:
		x.pending = int8(e)
		x.fail(engineFaults[e], x.vm.fault)
	case engine.Illegal:
		x.card.stats.EngineErrors.Add(1)
		h.intr = gf100.PBDMAIntrMethod
		x.hold(h)
	}
}

func (x *run) copyEngine(e uint8) *engine.CE { return &x.ce[e-gf100.EngineCE0] }

// enter takes an engine for one call.
func (x *run) enter(e uint8) {
	l := &x.card.engines[e]
	l.mu.Lock()
	l.user.Store(int32(x.id) + 1)
	x.engine = l
}

func (x *run) leave() {
	x.engine.user.Store(0)
	x.engine.mu.Unlock()
	x.engine = nil
}

// notify is told of what an engine asks for beside its memory accesses.
func (x *run) notify(engine.Event) {
	x.nonStall |= 1 << gf100.EngineGR
	x.released = true
}

// replay tries a held method again that the driver acknowledged without passing
// it over.
func (x *run) replay() verdict {
	h := x.channel.held
	x.channel.held = heldMethod{}
	if h.intr&(gf100.PBDMAIntrEmptySubch|gf100.PBDMAIntrMethod) == 0 {
		return more // a bad word or pointer; there is nothing to execute
	}
	x.method(h.subch, h.method, h.data)
	return x.verdict
}
