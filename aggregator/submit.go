package aggregator

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/mmio/gf100"
)

// A submission goes through Doorbell, or the end of the round for which it waited, and then
// submit. Only submit passes work to the card.
//
// The trap or the round reads GP_PUT first and flushes aliases second, and submits up to
// that GP_PUT. A GP_PUT written later has a doorbell of its own: data stored before it may
// not be flushed yet.

// Doorbell handles a guest's write of GP_PUT of a channel, after a flush of aliases. If no
// pending request affects the submission, the card gets it immediately.
func (g *Guest) Doorbell(id uint8) {
	b, changed := g.readPut(id)
	if changed {
		g.flushAliases()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ring(id, g.notePut(b))
}

// flushAliases writes what the guest stored in aliases to where the card reads it.
func (g *Guest) flushAliases() {
	if set := g.mapped.Load(); set != nil {
		set.MemoryBarrier()
	}
}

// putRead is a GP_PUT that was read from a channel's USERD.
type putRead struct {
	ch     *boundChannel // nil: none is bound
	putSeq uint64        // of the channel at the time
	put    uint32        // GP_PUT
}

// readPut reads a channel's GP_PUT and reports whether it changed since its last doorbell.
func (g *Guest) readPut(id uint8) (b putRead, changed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ch := g.channels[id].ch; ch != nil {
		return ch.readPut()
	}
	return b, false
}

// readPut is Guest.readPut with Guest.mu held.
func (ch *boundChannel) readPut() (b putRead, changed bool) {
	b = putRead{ch, ch.putSeq, ch.lastPut}
	if put, ok := ch.put(); ok {
		b.put = put
	}
	return b, b.put != ch.lastPut
}

// notePut records a GP_PUT, unless a newer one was recorded since. Guest.mu is held.
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

// ring submits a channel's work, if no request is pending or current and aliases were flushed
// for its GP_PUT. Else a round flushes and submits. Guest.mu is held.
func (g *Guest) ring(id uint8, flushed bool) {
	g.stats.Doorbells.Add(1)
	if !g.channels[id].bound {
		return
	}
	if ch := g.channels[id].ch; ch != nil && flushed && g.idle() && !g.needsFlush(ch) {
		g.submit(ch, ch.lastPut)
		return
	}
	g.pending.doorbells.add(id)
	if !flushed {
		g.pending.flush.add(id)
	}
	g.wake.Broadcast()
}

// rereadPut reads GP_PUT of a channel that had a doorbell before it was bound, or for which
// aliases were not flushed. The round flushes afterwards. It belongs to the worker, which
// alone changes guestChannel.ch.
func (g *Guest) rereadPut(id uint8) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ch := g.channels[id].ch
	if ch == nil {
		return // the round binds it and reads GP_PUT then
	}
	b := putRead{ch: ch, putSeq: ch.putSeq}
	g.mu.Unlock()
	g.moving.RLock() // not inside Guest.mu: the mover waits for engines
	put, ok := ch.put()
	g.moving.RUnlock()
	g.mu.Lock()
	if b.put = put; ok {
		g.notePut(b)
	}
	ch.roundPut = ch.lastPut
}

// submit forwards a channel's work up to put: to the scheduler if there is one (see gate),
// else to the card. All that the work depends on is complete. A faulted channel gets no
// doorbell: a step still under way would read GP_PUT again and execute work submitted after
// the guest got the fault. When the channel is bound again, its GP_PUT is read from USERD.
// Guest.mu is held.
func (g *Guest) submit(ch *boundChannel, put uint32) {
	if ch.ended() {
		return
	}
	g.agg.gate.Submit(ch, put)
}

// put reads the guest's GP_PUT.
func (ch *boundChannel) put() (put uint32, ok bool) {
	g := ch.guest
	at, ok := g.extents.Translate(ch.userd, gf100.USERDSize)
	if !ok {
		return 0, false
	}
	b := g.agg.userds.Get().(*userd)
	defer g.agg.userds.Put(b)
	word := b[gf100.USERDGPPut:]
	g.agg.gpu.ReadVRAM(at+gf100.USERDGPPut, word)
	return binary.LittleEndian.Uint32(word), true
}
