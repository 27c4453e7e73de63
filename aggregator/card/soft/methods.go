package soft

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// firstEngineMethod is where an object's own methods begin; those below are the
// host's.
const firstEngineMethod = 0x100

// methodMask is what a method's byte offset can be.
const methodMask = 0x3ffc

// method executes one method, unless the sub-device mask leaves this card out.
func (x *run) method(subch uint8, method uint16, data uint32) {
	if x.SubMask&1 == 0 {
		return
	}
	x.card.stats.Methods.Add(1)
	if method < firstEngineMethod {
		x.hostMethod(subch, method, data)
		return
	}
	o := &x.Objects[subch]
	switch {
	case !o.Bound || o.Engine == engineSoftware:
		x.hold(heldMethod{Subch: subch, Method: method, Data: data, Intr: gf100.PBDMAIntrEmptySubch})
	default:
		x.engineMethod(o, subch, method, data)
	}
}

// notify records an event of an engine besides its memory accesses.
func (x *run) notify(engine.Event) {
	x.nonStall |= 1 << x.serving
	x.released = true
}
