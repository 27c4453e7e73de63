package channels

// A submission reads GP_PUT first and flushes aliases second, and submits up to that GP_PUT. A
// GP_PUT written later has a doorbell of its own: data stored before it may not be flushed yet.

// PutRead is a GP_PUT that was read from a channel's structures. The zero value names no channel.
type PutRead struct {
	ch     *Channel
	putSeq uint64 // of the channel at the time
	put    uint32 // GP_PUT
}

// ReadPut reads a channel's GP_PUT and reports whether it changed since its last doorbell.
func (c *Channels) ReadPut(id uint32) (b PutRead, changed bool) {
	ch := c.channels[id]
	if ch == nil {
		return b, false
	}
	b = PutRead{ch, ch.state.PutSeq, ch.state.LastPut}
	if put, ok := ch.structures.Put(false); ok {
		b.put = put
	}
	return b, b.put != ch.state.LastPut
}

// NotePut records a GP_PUT, unless a newer one was recorded since, and reports whether it did.
func (c *Channels) NotePut(b PutRead) bool {
	if b.ch == nil || !c.Is(b.ch) || b.ch.state.PutSeq != b.putSeq {
		return false
	}
	if b.put != b.ch.state.LastPut {
		b.ch.state.LastPut = b.put
		b.ch.state.PutSeq++
	}
	return true
}

// BeginRound notes up to where the round that begins submits.
func (ch *Channel) BeginRound() { ch.state.RoundPut = ch.state.LastPut }

// SubmitRound submits what the round began with, and SubmitAll all.
func (ch *Channel) SubmitRound() { ch.submit(ch.state.RoundPut) }

// SubmitAll submits up to the last GP_PUT that was noted.
func (ch *Channel) SubmitAll() { ch.submit(ch.state.LastPut) }

// submit forwards the channel's work up to put to the gate. All that the work depends on is
// complete. A faulted channel gets no doorbell: a step still under way would read GP_PUT again and
// execute work submitted after the guest got the fault. When the channel is bound again, its
// GP_PUT is read from the guest's structures.
func (ch *Channel) submit(put uint32) {
	if !ch.Ended() && !ch.of.Planned.take(ch, put) {
		ch.trace(put)
		ch.of.cfg.Gate.Submit(ch, put)
	}
}

// Show shows the guest what the channel reports.
func (ch *Channel) Show() { ch.structures.Show(ch.card.Progress()) }

// Reread reads and notes GP_PUT of a channel that had a doorbell before it was bound, or for which
// aliases were not flushed. The round flushes afterwards. It belongs to the worker, which calls it
// without the guest's lock: it waits while pages move, and their mover waits for engines.
func (c *Channels) Reread(id uint32) {
	var b PutRead
	c.locked(func() {
		if ch := c.channels[id]; ch != nil { // else the round binds it and reads GP_PUT then
			b = PutRead{ch, ch.state.PutSeq, ch.state.LastPut}
		}
	})
	if b.ch == nil {
		return
	}
	if put, ok := b.ch.structures.Put(true); ok {
		b.put = put
	}
	c.locked(func() {
		c.NotePut(b)
		b.ch.BeginRound()
	})
}

// save, for the worker, writes the state of a channel that has left the card to the guest's
// structures. It must precede the moment when the guest can see that the channel is off: after
// that the guest may reuse the memory.
func (ch *Channel) save() {
	ch.structures.Save(ch.card.State())
	ch.Show()
}
