package aggregator

import (
	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// The way of a submission: Bell, or the end of the round that it had to wait for,
// then submit. When a channel's work reaches the card is decided in submit and nowhere
// else.
//
// What goes along is a GP_PUT that was read before what the guest had stored was gathered, by
// the trap or by the round. One that the guest writes later has a bell of its own, and what it
// stored before that may not be where the card finds it yet.

// Doorbell tells that the guest wrote GP_PUT of a channel. What the guest wrote to aliases before
// is flushed first. If nothing else is under way that the submission could depend on, the card
// hears of it at once.
func (g *Guest) Doorbell(id uint8) {
	b, news := g.readPut(id)
	if news {
		g.gather()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ring(id, g.notePut(b))
}

// gather brings what the guest wrote to aliases to where the card finds it.
func (g *Guest) gather() {
	if set := g.mapped.Load(); set != nil {
		set.GatherAll()
	}
}

// found is what there was to hear of a channel.
type putRead struct {
	ch     *channel // nil: it has none
	putSeq uint64   // as it had been heard so often
	put    uint32   // GP_PUT
}

// listenTo looks at a channel's GP_PUT, and tells whether it is another than was heard last.
func (g *Guest) readPut(id uint8) (b putRead, news bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels[id].ch; ch != nil {
		return ch.readPut()
	}
	return b, false
}

// listen is listenTo. Guest.mu is held.
func (ch *channel) readPut() (b putRead, news bool) {
	b = putRead{ch, ch.putSeq, ch.lastPut}
	if put, ok := ch.put(); ok {
		b.put = put
	}
	return b, b.put != ch.lastPut
}

// heed notes what was found, if nobody has heard news of the channel in between. Guest.mu is held.
func (g *Guest) notePut(b putRead) bool {
	if b.ch == nil || g.channels[b.ch.gid].ch != b.ch || b.ch.putSeq != b.putSeq {
		return false
	}
	if b.put != b.ch.lastPut {
		b.ch.lastPut = b.put
		b.ch.putSeq++
	}
	return true
}

// ring has a channel's bell take its way: at once if nothing is under way, and what was heard
// of it has been gathered; else with a round, that looks, and gathers. Guest.mu is held.
func (g *Guest) ring(id uint8, gathered bool) {
	g.stats.Doorbells.Add(1)
	if !g.channels[id].bound {
		return
	}
	if ch := g.channels[id].ch; ch != nil && gathered && g.idle() && !g.needsFlush(ch) {
		g.submit(ch, ch.lastPut)
		return
	}
	g.pending.doorbells.add(id)
	if !gathered {
		g.pending.gather.add(id)
	}
	g.wake.Broadcast()
}

// relisten looks again at a channel that was rung without having been heard, or gathered for: one
// that was being bound when its bell rang has been heard by nobody. The round gathers afterwards.
// It is the guest's goroutine's, which alone changes who stands behind a number.
func (g *Guest) rereadPut(id uint8) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels[id].ch
	if ch == nil {
		return // the round binds it, and finds GP_PUT then
	}
	b := putRead{ch: ch, putSeq: ch.putSeq}
	g.mu.Unlock()
	g.moving.RLock() // not inside Guest.mu: who moves pages waits for engines
	put, ok := ch.put()
	g.moving.RUnlock()
	g.mu.Lock()
	if b.put = put; ok {
		g.notePut(b)
	}
	ch.roundPut = ch.lastPut
}

// submit has a channel's work up to put reach the card: all that it depends on is done.
// With a scheduler that is when it is the channel's turn (see gate), else now. A channel
// that has come to its end hears nothing more: a step that is still under way reads GP_PUT
// again, and would do work that was submitted after the guest was told of the end. If the
// channel is bound anew, it finds GP_PUT where the guest left it. Guest.mu is held.
func (g *Guest) submit(ch *channel, put uint32) {
	if ch.ended() {
		return
	}
	ch.mayHaveRun, ch.active = true, true
	if g.agg.gate != nil {
		g.agg.gate.submit(ch, put)
	} else {
		g.agg.ctl.doorbell(ch.id, put)
	}
}

// put reads the guest's GP_PUT.
func (ch *channel) put() (put uint32, ok bool) {
	at, ok := ch.guest.extents.translate(ch.userd, gf100.USERDSize)
	if !ok {
		return 0, false
	}
	return ch.guest.agg.ctl.readVRAM(at + gf100.USERDGPPut), true
}

// ended reports whether the channel has come to its end. Guest.mu is held.
func (ch *channel) ended() bool { return ch.stopped && !ch.held }

// waits reports whether the channel has work that the card has not been told of.
func (ch *channel) waits() bool {
	t := ch.guest.agg.gate
	return t != nil && t.waiting(ch)
}

// moved reports whether the channel may have done anything since the last call. One
// that was seen at its end, and that nothing has let run since, has not, and is not
// looked at. GP_GET alone does not tell: what was fetched last may still be under way,
// and ask for an event at its end. Guest.mu is held.
func (ch *channel) takeMayHaveRun() bool {
	if !ch.sent.Swap(false) && !ch.mayHaveRun {
		return false
	}
	waits := ch.waits() // what has no turn yet may have one before we look further
	c := &ch.guest.agg.ctl
	get, put := c.readVRAM(ch.cardUSERD()+gf100.USERDGPGet), c.readVRAM(ch.cardUSERD()+gf100.USERDGPPut)
	ch.mayHaveRun = waits || get != put || !c.quiet(ch.id)
	return true
}
