package aggregator

import "github.com/umbra-gpu/umbra/mmio/gf100"

// The way of a submission: Bell, or the end of the round that it had to wait for,
// then submit, then forward. When a channel's work reaches the card is decided in
// submit and nowhere else; what reaches it is decided in forward.

// Bell tells that the guest wrote GP_PUT of a channel. If nothing is under way
// that the submission could depend on, the card hears of it at once.
func (g *Guest) Bell(id uint8) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ring(id)
}

// ring is Bell. Guest.mu is held.
func (g *Guest) ring(id uint8) {
	g.stats.Bells.Add(1)
	if !g.channels[id].bound {
		return
	}
	if ch := g.channels[id].ch; ch != nil && g.idle() && !g.owes(ch) {
		g.submit(ch)
		return
	}
	g.todo.bell.add(id)
	g.wake.Broadcast()
}

// submit has a channel's work reach the card: all that it depends on is done. With
// a scheduler that is when it is the channel's turn (see gate), else now. Guest.mu is
// held.
func (g *Guest) submit(ch *channel) {
	if g.agg.gate == nil {
		g.forward(ch)
		return
	}
	put, ok := ch.put()
	if !ok || ch.ended() {
		return
	}
	ch.rung, ch.active, ch.showing, ch.heard = true, true, true, put
	g.agg.gate.submit(ch, put)
}

// ended reports whether the channel has come to its end. Guest.mu is held.
func (ch *channel) ended() bool { return ch.stopped && !ch.held }

// waits reports whether the channel has work that the card has not been told of.
func (ch *channel) waits() bool {
	t := ch.guest.agg.gate
	return t != nil && t.waiting(ch)
}

// forward gives the guest's GP_PUT to the card, as it is in memory now: a bell
// that comes late loses nothing, and rings for all before it. A channel that has come
// to its end hears nothing more: a step that is still under way reads GP_PUT again,
// and would do work that was submitted after the guest was told of the end. If the
// channel is bound anew, it finds GP_PUT where the guest left it. Guest.mu is held.
func (g *Guest) forward(ch *channel) {
	if ch.ended() {
		return
	}
	at, ok := g.extents.translate(ch.userd, gf100.USERDSize)
	if !ok {
		return
	}
	ch.rung, ch.active, ch.showing = true, true, true
	ch.heard = g.agg.ctl.readVRAM(at + gf100.USERDGPPut)
	g.agg.ctl.bell(ch.id, ch.heard)
}

// moved reports whether the channel may have done anything since the last call. One
// that was seen at its end, and that nothing has let run since, has not, and is not
// looked at. GP_GET alone does not tell: what was fetched last may still be under way,
// and ask for an event at its end. Guest.mu is held.
func (ch *channel) moved() bool {
	if !ch.sent.Swap(false) && !ch.rung {
		return false
	}
	waits := ch.waits() // what has no turn yet may have one before we look further
	c := &ch.guest.agg.ctl
	get, put := c.readVRAM(ch.cardUSERD()+gf100.USERDGPGet), c.readVRAM(ch.cardUSERD()+gf100.USERDGPPut)
	ch.rung = waits || get != put || !c.quiet(ch.id)
	return true
}
