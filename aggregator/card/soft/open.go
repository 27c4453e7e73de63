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

// Description describes a channel that has neither instance block nor registers.
type Description struct {
	Class  uint16 // of the channel: c86f
	Space  shadowpt.Space
	Ring   card.Ring
	USERD  uint64 // address of its USERD
	In     shadowpt.Target
	Engine card.Engine // the first of its runlist
	Owner  uint8       // below gf100.Owners; its memory is what MapDMA gave to the owner
	// Privileged channels reach pages that are only for drivers.
	Privileged bool
	// Events receives what happens to the channel, one call at a time, from a goroutine of the card.
	// No lock is held meanwhile; Close must not be called.
	Events card.ChannelEvents
}

// Channel is a channel made by OpenChannel. Methods may be called from any goroutine.
type Channel struct{ ch *channel }

// OpenChannel makes a channel that is stopped. It uses a number of the channel table that no channel
// has, and a reset of the card ends it.
func (c *Card) OpenChannel(d Description) (*Channel, error) {
	kind := kinds[d.Class]
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
	id := len(c.fifo.channels) - 1
	for id >= 0 && c.fifo.channels[id] != nil {
		id--
	}
	if id < 0 || c.closing {
		return nil, card.ErrChannels
	}
	ch := &channel{card: c, kind: kind, direct: &d}
	kind.contexts(ch)
	ch.ID, ch.Owner, ch.Session = uint8(id), d.Owner, ^uint64(0) // no session: its state is not kept
	ch.vm.card, ch.vm.user, ch.vm.owner, ch.vm.privileged = c, id, d.Owner, d.Privileged
	d.Space.Limit = min(d.Space.Limit, kind.last)
	ch.vm.bind(kind.format, d.Space)
	ch.USERD, ch.USERDTarget, ch.Ring, ch.RingLog2 = d.USERD, d.In, d.Ring.Base, d.Ring.Log2
	ch.SubMask, ch.Pending = 0xfff, -1
	c.fifo.channels[id], c.fifo.Slots[id] = ch, Slot{Listed: true}
	return &Channel{ch}, nil
}

// ID is the number of the channel for QuiesceChannels, Use and Config.Watch.
func (o *Channel) ID() uint32 { return uint32(o.ch.ID) }

// Enable lets the channel run, or stops it between two steps.
func (o *Channel) Enable(on bool) {
	o.locked(func(f *fifo) { f.enable(int(o.ch.ID), on) })
}

// Doorbell submits the entries of the ring up to put.
func (o *Channel) Doorbell(put uint32) {
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

// Close ends the channel, and returns when it uses no memory any more.
func (o *Channel) Close() {
	o.locked(func(f *fifo) {
		f.drop(int(o.ch.ID))
		f.Slots[o.ch.ID] = Slot{}
	})
	f := &o.ch.card.fifo
	f.card.mu.Lock()
	defer f.card.mu.Unlock()
	for i := 0; i < len(f.busy); i++ {
		for f.busy[i].ch == o.ch {
			f.idle.Wait()
		}
	}
}

// locked calls do with Card.mu, unless the channel has ended.
func (o *Channel) locked(do func(*fifo)) {
	c := o.ch.card
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fifo.channels[o.ch.ID] == o.ch {
		do(&c.fifo)
	}
}

// InvalidateSpace makes the card drop its translations of an address space, and returns when no step
// under way uses them.
func (c *Card) InvalidateSpace(s shadowpt.Space) {
	c.mu.Lock()
	c.invalidate(directory{addr: s.Dir, target: s.Target})
	c.mu.Unlock()
	for owner := range c.owners {
		c.awaitSteps(uint8(owner))
	}
}

// stop ends the channel for a reason that is not an access.
func (x *run) stop(f card.Fault) {
	x.verdict, x.reason = faulted, &f
}

// announce tells what a step caused, before others see it.
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
