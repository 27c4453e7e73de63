package soft

import (
	"errors"
	"fmt"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/engine"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

var _ card.Describer = (*Card)(nil)

// opened is a channel made by OpenChannel. Its methods may be called from any goroutine.
type opened struct{ ch *channel }

// Format implements card.Describer.
func (c *Card) Format(class uint16) (*shadowpt.Format, bool) {
	kind := channelKinds[class]
	if kind == nil {
		return nil, false
	}
	return kind.format, true
}

// OpenChannel implements card.Describer.
func (c *Card) OpenChannel(d card.Description) (card.DescribedChannel, error) {
	kind := channelKinds[d.Class]
	switch {
	case kind == nil:
		return nil, fmt.Errorf("channel of class %04x: the card has c86f", d.Class)
	case int(d.Engine) >= len(gf100.Executing):
		return nil, fmt.Errorf("channel of engine %d: the card has %d", d.Engine, len(gf100.Executing))
	case d.Owner >= gf100.Owners || d.Ring.Log2 > 31 || d.Events == nil:
		return nil, errors.New("channel without events, of no owner, or with a ring of more than 2^31 entries")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Number >= gf100.Channels || c.fifo.channels[d.Number] != nil || c.closing {
		return nil, fmt.Errorf("channel %d: %w", d.Number, card.ErrChannels)
	}
	ch := &channel{card: c, kind: kind, direct: &d}
	kind.contexts(ch)
	ch.ID, ch.Owner, ch.Session = uint8(d.Number), d.Owner, c.contexts.Session
	ch.vm.card, ch.vm.user, ch.vm.owner, ch.vm.privileged = c, int(d.Number), d.Owner, d.Privileged
	d.Space.Limit = min(d.Space.Limit, kind.last)
	ch.vm.bind(kind.format, d.Space)
	ch.USERD, ch.USERDTarget, ch.Ring, ch.RingLog2 = d.USERD, d.In, d.Ring.Base, d.Ring.Log2
	ch.GPGet, ch.Host.Ref = d.State.GPGet, d.State.Ref
	ch.SubMask, ch.Pending = 0xfff, -1
	kind.begin(ch)
	ch.keeps(d.Keep)
	c.contexts.restore(ch, d.State.Token)
	ch.resumed()
	ch.show()
	c.fifo.channels[d.Number], c.fifo.Slots[d.Number] = ch, Slot{Listed: true}
	return &opened{ch}, nil
}

// Enable implements card.DescribedChannel.
func (o *opened) Enable(on bool) {
	o.locked(func(f *fifo) { f.enable(int(o.ch.ID), on) })
}

// Doorbell implements card.DescribedChannel.
func (o *opened) Doorbell(put uint32) {
	o.locked(func(f *fifo) {
		f.card.wake()
		f.card.access(o.ch.USERDTarget, func(t shadowpt.Target) {
			var w writes
			defer w.report()
			if b := f.card.memory(t, o.ch.USERD+gf100.USERDGPPut, 4, o.ch.Owner, &w); b != nil {
				store(b, []byte{byte(put), byte(put >> 8), byte(put >> 16), byte(put >> 24)})
			}
		})
		f.ring(int(o.ch.ID))
	})
}

// Running implements card.DescribedChannel, also of a channel that has ended.
func (o *opened) Running() bool {
	o.ch.card.mu.Lock()
	defer o.ch.card.mu.Unlock()
	return o.ch.card.fifo.runs(o.ch)
}

// Quiet implements card.DescribedChannel.
func (o *opened) Quiet() bool {
	quiet := true
	o.locked(func(*fifo) { quiet = o.ch.State == stateIdle })
	return quiet
}

// State implements card.DescribedChannel.
func (o *opened) State() card.State {
	o.ch.card.mu.Lock()
	defer o.ch.card.mu.Unlock()
	return o.ch.seen
}

// Close implements card.DescribedChannel.
func (o *opened) Close() {
	o.locked(func(f *fifo) { f.unbind(int(o.ch.ID)) })
	f := &o.ch.card.fifo
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	for f.runs(o.ch) {
		f.idle.Wait()
	}
}

// locked calls do with Card.mu, unless the channel has ended.
func (o *opened) locked(do func(*fifo)) {
	c := o.ch.card
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fifo.channels[o.ch.ID] == o.ch {
		do(&c.fifo)
	}
}

// runs reports whether a PBDMA runs ch.
func (f *fifo) runs(ch *channel) bool {
	for i := range f.busy {
		if f.busy[i].ch == ch {
			return true
		}
	}
	return false
}

// InvalidateSpaces implements card.Describer.
func (c *Card) InvalidateSpaces(owner uint8, spaces ...shadowpt.Space) (ended func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range spaces {
		c.forget(directory{addr: s.Dir, target: s.Target})
	}
	var steps [gf100.PBDMAs]uint64
	for i := range steps {
		if p := &c.fifo.busy[i]; p.ch != nil && p.ch.Owner == owner {
			steps[i] = p.steps.Load()
		}
	}
	return func() bool {
		for i, n := range steps {
			if n%2 != 0 && c.fifo.busy[i].steps.Load() == n {
				return false
			}
		}
		return true
	}
}

// show notes the state as of the end of a step. Card.mu is held.
func (ch *channel) show() {
	ch.seen = card.State{GPGet: ch.GPGet, Ref: ch.Host.Ref, Token: ch.Token}
}

// reportEnded reports to opened channels that the card has ended them. Card.mu is not held,
// and no step of them is under way.
func (c *Card) reportEnded() {
	c.mu.Lock()
	ended := c.fifo.ended
	c.fifo.ended = nil
	c.mu.Unlock()
	for _, d := range ended {
		d.Events.Fault(card.Fault{Kind: card.Broken, Engine: card.NoEngine, Text: "the card was reset"})
	}
}

// stop ends the channel for a reason that is not an access.
func (x *run) stop(f card.Fault) {
	x.verdict, x.reason = faulted, &f
}

// announce reports what a step caused, before others see it.
func (ch *channel) announce(s *step) {
	if ch.dead.Load() {
		return
	}
	if s.nonStall != 0 {
		var set card.EngineSet
		for i, e := range gf100.Executing {
			set |= card.EngineSet(s.nonStall >> e & 1 << i)
		}
		ch.direct.Events.Completed(set)
	}
	switch {
	case s.verdict != faulted:
	case s.broken != "":
		ch.direct.Events.Fault(card.Fault{Kind: card.Broken, Text: s.broken})
	case s.reason != nil:
		ch.direct.Events.Fault(*s.reason)
	default:
		f := card.Fault{Kind: card.Translation, Engine: card.NoEngine, VA: s.fault.VA, Write: s.fault.Write, Reason: shadowpt.Reason(s.fault.Reason)}
		if s.unit != gf100.ClientHost {
			f.Engine = engineOf(uint8(slices.Index(gf100.EngineClients[:], s.unit)))
		}
		ch.direct.Events.Fault(f)
	}
}

// heldKinds are the faults of what a channel of the registers holds for its driver.
var heldKinds = map[uint32]card.Kind{
	gf100.PBDMAIntrGPPtr: card.BadPointer, gf100.PBDMAIntrGPEntry: card.BadEntry, gf100.PBDMAIntrPBEntry: card.BadHeader,
	gf100.PBDMAIntrMethod: card.NoMethod, gf100.PBDMAIntrEmptySubch: card.NoMethod, gf100.PBDMAIntrSemaphore: card.BadSemaphore,
}

func heldFault(h heldMethod) card.Fault {
	return card.Fault{Kind: heldKinds[h.Intr], Engine: card.NoEngine, Subchannel: h.Subch, Method: uint32(h.Method), Data: h.Data}
}

// refusalKinds are the faults of an engine's refusals; other reasons are BadData.
var refusalKinds = map[engine.Reason]card.Kind{engine.NoClass: card.BadClass, engine.NoMethod: card.BadMethod, engine.NotCarriedOut: card.BadMethod}

func refusalFault(e, subch uint8, r engine.Refusal) card.Fault {
	f := card.Fault{Kind: card.BadData, Engine: engineOf(e), Subchannel: subch, Class: r.Class, Method: r.Method, Data: r.Data, Text: r.String()}
	if kind, ok := refusalKinds[r.Reason]; ok {
		f.Kind = kind
	}
	return f
}

// engineOf is the card's number of an engine of the registers.
func engineOf(e uint8) card.Engine { return card.Engine(slices.Index(gf100.Executing[:], int(e))) }
