// Package trace notes what happens to one guest, in the order in which it ends, while somebody records it.
//
// A [Recorder] is a ring of bounded size. Any goroutine may note events, and one takes them. Its lock is a leaf.
package trace

import (
	"encoding/binary"
	"sync"
	"sync/atomic"
	"time"
)

// Kind says what an event is.
type Kind uint8

// The kinds. What Addr, Value and Unit have is said where they differ from their usual meaning.
const (
	Read      Kind = iota + 1 // a trapped access: Unit is the region, Took the time of the handler
	Write                     // likewise
	Submit                    // the guest's channel got entries: Addr is the ring, Value the first entry and, in the upper half, the one after the last
	Entry                     // an entry of that submission: Addr is its place in the ring
	Words                     // of a pushbuffer: Size bytes at the channel's address Addr
	Code                      // of a program that the channel starts: Size bytes at its address Addr
	Busy                      // Unit is the engine, which worked for Value nanoseconds until At
	Forward                   // the scheduler gave Value entries to the card, and lets the channel run
	Pause                     // the scheduler takes the channel off its engine
	Abort                     // the scheduler ends the channel: its request does not end
	Interrupt                 // Value has the bits of Line
	Fault                     // see Stop
	Reset                     // the client reset the GPU
	Lost                      // Value events were not noted here: the ring was full
	kinds
)

var kindNames = [kinds]string{
	Read: "read", Write: "write", Submit: "submission", Entry: "entry", Words: "words", Code: "code", Busy: "engine", Forward: "forward", Pause: "pause",
	Abort: "abort", Interrupt: "interrupt", Fault: "fault", Reset: "reset", Lost: "lost",
}

// Known reports whether this version of the format has the kind.
func (k Kind) Known() bool { return k > 0 && k < kinds }

func (k Kind) String() string { return kindNames[k] }

// Bits of the Value of an Interrupt.
const (
	LineLevel = 1 << iota
	LineEdge
	LineMSI
	LineDisabled
)

// Event is one thing that happened. Files have it as Append writes it.
type Event struct {
	At          int64 // nanoseconds since the recording began
	Addr, Value uint64
	Took        uint32 // nanoseconds
	Channel     uint16 // the guest's number
	Kind        Kind
	Unit        uint8 // a region or an engine
	Size        uint8 // bytes of Value
	GPU         uint8 // its place in the list of the recording
}

// EventSize is the size of an event in a file.
const EventSize = 34

// Append appends an event as files have it.
func (e *Event) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(e.At))
	b = binary.LittleEndian.AppendUint64(b, e.Addr)
	b = binary.LittleEndian.AppendUint64(b, e.Value)
	b = binary.LittleEndian.AppendUint32(b, e.Took)
	b = binary.LittleEndian.AppendUint16(b, e.Channel)
	return append(b, byte(e.Kind), e.Unit, e.Size, e.GPU)
}

// Parse reads what Append wrote.
func (e *Event) Parse(b []byte) {
	*e = Event{
		At: int64(binary.LittleEndian.Uint64(b)), Addr: binary.LittleEndian.Uint64(b[8:]), Value: binary.LittleEndian.Uint64(b[16:]),
		Took: binary.LittleEndian.Uint32(b[24:]), Channel: binary.LittleEndian.Uint16(b[28:]), Kind: Kind(b[30]), Unit: b[31], Size: b[32], GPU: b[33],
	}
}

// Recorder has the events of one guest that nobody has taken yet. A nil Recorder notes nothing.
type Recorder struct {
	began time.Time
	gpu   uint8
	ready chan<- struct{}

	mu   sync.Mutex
	ring []Event
	next int // where the oldest event is
	n    int // events in the ring
	lost uint64
}

// New makes the recorder of one of the GPUs of a recording, with room for so many events. ready, of capacity 1, gets a
// value when half of them are there.
func New(gpu uint8, began time.Time, room int, ready chan<- struct{}) *Recorder {
	return &Recorder{began: began, gpu: gpu, ready: ready, ring: make([]Event, room)}
}

// Note notes an event of now, or of the time that it has. With a full ring it is lost, and counted.
func (r *Recorder) Note(e Event) {
	if r == nil {
		return
	}
	if e.At == 0 {
		e.At = int64(time.Since(r.began))
	}
	e.GPU = r.gpu
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == len(r.ring) {
		r.lost++
		return
	}
	at := r.next + r.n
	if at >= len(r.ring) {
		at -= len(r.ring)
	}
	r.ring[at] = e
	if r.n++; r.n == len(r.ring)/2 {
		select {
		case r.ready <- struct{}{}:
		default:
		}
	}
}

// Access notes a trapped access that began at start and has ended: one event for each 8 bytes.
func (r *Recorder) Access(k Kind, region int, off uint64, p []byte, start time.Time) {
	if r == nil {
		return
	}
	e := Event{At: int64(start.Sub(r.began)), Kind: k, Unit: uint8(region), Addr: off, Took: uint32(min(time.Since(start), time.Duration(^uint32(0))))}
	for {
		n := min(len(p), 8)
		var b [8]byte
		copy(b[:], p[:n])
		e.Value, e.Size = binary.LittleEndian.Uint64(b[:]), uint8(n)
		r.Note(e)
		if p = p[n:]; len(p) == 0 {
			return
		}
		e.Addr += uint64(n)
	}
}

// Take appends the events to list, and after them how many were lost since.
func (r *Recorder) Take(list []Event) []Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ; r.n > 0; r.n-- {
		list = append(list, r.ring[r.next])
		if r.next++; r.next == len(r.ring) {
			r.next = 0
		}
	}
	if r.lost > 0 {
		list = append(list, Event{At: int64(time.Since(r.began)), Kind: Lost, Value: r.lost, GPU: r.gpu})
		r.lost = 0
	}
	return list
}

// Point is where a guest's events pass. While nobody records, it costs one atomic load.
type Point struct{ p atomic.Pointer[Recorder] }

// Set begins a recording, or ends it with nil.
func (p *Point) Set(r *Recorder) { p.p.Store(r) }

// Trace returns the recorder, nil if nobody records.
func (p *Point) Trace() *Recorder { return p.p.Load() }

// Stop is why a channel stopped, in the numbers of package card. An address belongs to a translation, a method to the others.
type Stop struct {
	Kind, Reason   uint8
	Write, Program bool
	VA             uint64
	Class          uint16
	Method, Data   uint32
}

// Event is the Fault of a channel on an engine.
func (s Stop) Event(channel uint16, engine uint8) Event {
	e := Event{Kind: Fault, Channel: channel, Unit: engine, Addr: s.VA, Took: s.Data}
	e.Value = uint64(s.Kind) | uint64(s.Reason)<<8 | uint64(s.Class)<<16 | uint64(s.Method&0xffffff)<<32
	if s.Write {
		e.Size |= 1
	}
	if s.Program {
		e.Size |= 2
	}
	return e
}

// Stop returns what a Fault has.
func (e *Event) Stop() Stop {
	return Stop{
		Kind: uint8(e.Value), Reason: uint8(e.Value >> 8), Class: uint16(e.Value >> 16), Method: uint32(e.Value >> 32 & 0xffffff),
		Write: e.Size&1 != 0, Program: e.Size&2 != 0, VA: e.Addr, Data: e.Took,
	}
}

// EntryOf takes a ring entry apart, which has this form on every chip.
func EntryOf(v uint64) (va uint64, words uint32) {
	return v & 0xff_ffff_fffc, uint32(v>>42) & 0x1f_ffff
}
