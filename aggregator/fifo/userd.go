package fifo

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// A submission reads GP_PUT first and flushes aliases second, and submits up to that GP_PUT. A
// GP_PUT written later has a doorbell of its own: data stored before it may not be flushed yet.

// PutRead is a GP_PUT that was read from a channel's USERD. The zero value names no channel.
type PutRead struct {
	ch     *Channel
	putSeq uint64 // of the channel at the time
	put    uint32 // GP_PUT
}

// ReadPut reads a channel's GP_PUT and reports whether it changed since its last doorbell.
func (f *FIFO) ReadPut(id uint8) (b PutRead, changed bool) {
	ch := f.channels[id]
	if ch == nil {
		return b, false
	}
	b = PutRead{ch, ch.state.PutSeq, ch.state.LastPut}
	if put, ok := ch.put(); ok {
		b.put = put
	}
	return b, b.put != ch.state.LastPut
}

// NotePut records a GP_PUT, unless a newer one was recorded since, and reports whether it did.
func (f *FIFO) NotePut(b PutRead) bool {
	if b.ch == nil || !f.Is(b.ch) || b.ch.state.PutSeq != b.putSeq {
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
// GP_PUT is read from USERD.
func (ch *Channel) submit(put uint32) {
	if !ch.Ended() {
		ch.fifo.cfg.Gate.Submit(ch, put)
	}
}

// put reads the guest's GP_PUT.
func (ch *Channel) put() (put uint32, ok bool) {
	return ch.fifo.cfg.Mem.Peek(ch.userd + gf100.USERDGPPut)
}

// ShowUSERD copies what the card wrote to the channel's USERD to the guest's. It writes only
// changes, because each write makes the card check every waiting semaphore.
func (ch *Channel) ShowUSERD() {
	words := structs.ProgressWords(ch.card.Progress())
	if ch.fifo.cfg.Mem.Update(ch.userd, words[:]) {
		ch.fifo.cfg.Shadows.Wrote(ch.userd, gf100.USERDSize)
	}
}

// Reread reads and notes GP_PUT of a channel that had a doorbell before it was bound, or for which
// aliases were not flushed. The round flushes afterwards. It belongs to the worker, which calls it
// without the guest's lock: it waits while pages move, and their mover waits for engines.
func (f *FIFO) Reread(id uint8) {
	f.cfg.Lock.Lock()
	defer f.cfg.Lock.Unlock()
	ch := f.channels[id]
	if ch == nil {
		return // the round binds it and reads GP_PUT then
	}
	b := PutRead{ch, ch.state.PutSeq, ch.state.LastPut}
	f.cfg.Lock.Unlock()
	var p [4]byte
	if f.cfg.Mem.Read(shadowpt.VRAM, ch.userd+gf100.USERDGPPut, p[:]) {
		b.put = binary.LittleEndian.Uint32(p[:])
	}
	f.cfg.Lock.Lock()
	f.NotePut(b)
	ch.BeginRound()
}

// readUSERD, for the worker, reads the guest's USERD before the channel is bound.
func (ch *Channel) readUSERD() (p card.Progress, put uint32, ok bool) {
	var b [gf100.USERDGPPut + 4]byte
	mem := ch.fifo.cfg.Mem
	if _, ok = mem.Translate(shadowpt.VRAM, ch.userd, gf100.USERDSize, true); ok {
		mem.Read(shadowpt.VRAM, ch.userd, b[:])
	}
	p, put = structs.ReadUSERD(b[:])
	return p, put, ok
}

// saveBack, for the worker, writes the state of a channel that has left the card to the guest's
// structures. It must precede the moment when the guest can see that the channel is off: after
// that the guest may reuse the memory.
func (ch *Channel) saveBack(s card.State) {
	for _, w := range structs.SavedWords(s) {
		ch.fifo.cfg.Mem.Write(shadowpt.VRAM, ch.Inst+w.Offset, binary.LittleEndian.AppendUint32(nil, w.Value))
	}
	ch.ShowUSERD()
}
