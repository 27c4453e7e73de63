package channels

import (
	"encoding/binary"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/trace"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// A recording has each submission at its time. What it submits is read a moment later, by whoever takes the events: the
// walk of the guest's tables waits for its memory, as no trap may.

// The most that is read of one submission: a guest may submit a ring of 2^20 entries again and again.
const (
	tracedEntries = 64
	tracedWords   = 4096
)

// seen is what a recording needs of a channel.
type seen struct {
	ring  card.Ring
	limit uint64 // last address of the space
	put   uint32 // that was submitted last; guarded by the guest's lock

	planted bool // a fault; likewise
}

func seenOf(d *Description) seen { return seen{ring: d.Ring, limit: d.Space.Limit, put: d.State.GPGet} }

// RingAddress is where the channel finds its ring.
func (ch *Channel) RingAddress() uint64 { return ch.seen.ring.Base }

// trace notes a submission up to put, unless there is nothing new. The guest's lock is held.
func (ch *Channel) trace(put uint32) {
	from := ch.seen.put
	if from == put {
		return
	}
	ch.seen.put = put
	if r := ch.of.guest.Trace(); r != nil {
		r.Note(trace.Event{Kind: trace.Submit, Channel: uint16(ch.ID), Addr: ch.seen.ring.Base, Value: uint64(put)<<32 | uint64(from)})
	}
}

// Submitted appends the ring entries of a submission to list, and with words those of their pushbuffers. No lock is held.
func (ch *Channel) Submitted(list []trace.Event, e trace.Event, words bool) []trace.Event {
	from, put, ring := uint32(e.Value), uint32(e.Value>>32), ch.seen.ring
	if ring.Log2 >= 32 {
		return list
	}
	size, left := uint32(1)<<ring.Log2, uint32(tracedWords)
	for range min((put-from)&(size-1), tracedEntries) {
		var b [8]byte
		at := ring.Base + 8*uint64(from)
		if !ch.Read(at, b[:]) {
			break
		}
		entry := binary.LittleEndian.Uint64(b[:])
		list = append(list, trace.Event{At: e.At, GPU: e.GPU, Channel: e.Channel, Kind: trace.Entry, Addr: at, Value: entry, Size: 8})
		if words {
			list, left = ch.words(list, e, entry, left)
		}
		from = (from + 1) & (size - 1)
	}
	return list
}

// words appends what a ring entry names, left words at most. It returns how many more there may be.
func (ch *Channel) words(list []trace.Event, e trace.Event, entry uint64, left uint32) ([]trace.Event, uint32) {
	va, n := trace.EntryOf(entry)
	p := make([]byte, 4*min(n, left))
	if !ch.Read(va, p) {
		return list, left
	}
	left -= uint32(len(p) / 4)
	for ; len(p) > 0; va += 8 {
		var b [8]byte
		size := copy(b[:], p)
		p = p[size:]
		list = append(list, trace.Event{At: e.At, GPU: e.GPU, Channel: e.Channel, Kind: trace.Words, Addr: va, Value: binary.LittleEndian.Uint64(b[:]), Size: uint8(size)})
	}
	return list, left
}

// Read copies memory by the channel's addresses, as the guest's tables are now. No lock is held.
func (ch *Channel) Read(va uint64, p []byte) bool {
	m, s := ch.of.cfg.Mem, shadowpt.Space{Limit: ch.seen.limit}
	s.Dir, s.Target = ch.Space()
	for len(p) > 0 {
		page, _, ok := ch.of.cfg.Format.Walk(m, s, va)
		if !ok || page.Sparse || !page.Valid {
			return false
		}
		off := va - page.VA
		n := min(uint64(len(p)), page.Size-off)
		if !m.Read(page.Target, page.Addr+off, p[:n]) {
			return false
		}
		va, p = va+n, p[n:]
	}
	return true
}

// stopOf is a fault as a recording has it.
func stopOf(f card.Fault) trace.Stop {
	return trace.Stop{
		Kind: uint8(f.Kind), Reason: uint8(f.Reason), Write: f.Write, Program: f.Program, VA: f.VA, Class: f.Class, Method: f.Method, Data: f.Data,
	}
}
