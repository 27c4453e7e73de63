package engine

import (
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm"
	"github.com/umbra-gpu/umbra/aggregator/card/soft/sm/isa"
)

// Budget is the most bytes that one Method, Inline or Step call moves (a
// block-linear copy ends the GOB it is in), unless Env says less. It is large enough that a
// linear copy is done with stores that pass the caches.
const Budget = 2 << 20

const (
	vaBits = 40
	vaMask = 1<<vaBits - 1

	// pageSize is the smallest page of the address space. A window never asks
	// for more than the rest of one, so that it costs one translation.
	pageSize = 4096
)

// Memory is a channel's address space as its engines see it. A slice is valid
// until the current Method, Inline or Step call returns.
type Memory interface {
	// Bytes returns between 1 and n bytes that lie together at va (a run may be
	// shorter than n: ask again for the rest), or a fault. No byte is beyond Env.Last.
	// The slice is the memory itself.
	Bytes(va uint64, n int, write bool) ([]byte, *Fault)
}

// Fault is an access that the address space refused.
type Fault struct {
	VA    uint64
	Write bool
	// Reason is the MMU's fault reason, NV_PFIFO_MMU_FAULT_INFO 3:0.
	Reason uint8
}

// Outcome is the result of a call.
type Outcome uint8

const (
	Done    Outcome = iota // nothing is left
	Busy                   // taken, work is left: call Step
	Faulted                // taken, stopped at Fault: call Step to try again, or Abort
	Illegal                // not executed: Refusal has the reason
)

func (o Outcome) String() string {
	return [...]string{"done", "busy", "faulted", "illegal"}[o&3]
}

// Env is what an engine needs from the card for one call. It is passed in and
// never stored.
type Env struct {
	Mem Memory
	// Now is PTIMER in nanoseconds, for four-word semaphores and reports.
	Now func() uint64
	// Notify receives the event that a method asked for. May be nil.
	Notify func(Event)
	// Grid keeps the channel's launch between two calls. Not nil.
	Grid *Grid
	// Pages are those of Mem that programs have reached. Not nil.
	Pages *Pages
	// Processors belong to the graphics engine. Not nil.
	Processors *Processors
	// Native runs programs as machine code, with memory that Places finds. Both may be nil.
	Native Native
	Places Places
	// ProgramFault receives what a program did wrong. May be nil.
	ProgramFault func(error)
	// Launched receives each launch of a program. May be nil.
	Launched func(*sm.Launch)
	// Ran receives what each launch that ended well executed, from each processor: warp instructions by
	// form. It also receives what a launch executed until another channel's turn. May be nil.
	Ran func(map[*isa.Form]uint64)
	// Stats counts. Not nil.
	Stats *Stats
	// Work counts for the channel's owner. May be nil.
	Work *Work
	// Last is the last address of Mem, one less than a power of two; 0 means vaMask.
	Last uint64
	// Budget is the most bytes this call moves; 0 means Budget.
	Budget int

	word [4]byte // of a method that takes runs of words
	// Meter bounds the calls of one step. Mem charges its look-ups.
	Meter
}

// launched counts a copy, upload or program that a call started, by the class's place in Stats.
func (e *Env) launched(stat int) {
	e.Charge(costLaunch)
	e.Stats.class[stat].Launches.Add(1)
	if e.Work != nil {
		e.Work.class[stat].launches.Add(1)
	}
}

// moved counts bytes that were written by a copy or upload.
func (e *Env) moved(stat int, n uint64) {
	e.Stats.class[stat].Bytes.Add(n)
	if e.Work != nil {
		e.Work.class[stat].bytes.Add(n)
	}
}

func (e *Env) budget() uint64 {
	if e.Budget > 0 {
		return min(uint64(e.Budget), Budget)
	}
	return Budget
}

func (e *Env) notify(ev Event) {
	if e.Notify != nil {
		e.Notify(ev)
	}
}

// words is the budget in bytes as whole words, at least one.
func (e *Env) words() int { return max(4, int(e.budget())&^3) }

// EventKind is what a method asks for beyond memory.
type EventKind uint8

const (
	// EventInterrupt: a completed M2MF launch asked for an interrupt.
	EventInterrupt EventKind = iota
	// EventAwaken: a report semaphore asked to wake its waiter. Like the host's
	// NON_STALL_INTERRUPT it stops nothing.
	EventAwaken
	// EventTrap: a report semaphore with operation TRAP.
	EventTrap
)

// Event is one such request.
type Event struct {
	Class uint16
	Kind  EventKind
}

// Reason is the reason why a method was refused.
type Reason uint8

const (
	NoClass       Reason = iota + 1 // the engine has no such class
	NoMethod                        // the class has no such method
	BadBitfield                     // data has bits outside the method's fields
	BadEnum                         // a field has a value that the class does not declare
	BadMacro                        // a macro has an undefined instruction, or wants other methods
	BlockMismatch                   // the block's dimensions are not its number of threads
	NoWarps                         // the processor has not so many threads for a block
	NoRegisters                     // nor so many registers
	NoShared                        // nor so much shared memory
	NoLocal                         // nor so much local memory, or the driver gave too little
	BadProgram                      // a program did what it must not
	NotCarriedOut                   // the class has the method, and this card cannot carry it out
)

// GRDataError is the code PGRAPH reports for the reason in its data error
// register, or 0 for an illegal method (which has an interrupt bit of its own).
func (r Reason) GRDataError() uint32 {
	switch r {
	case BadBitfield:
		return 0xc
	case BadEnum:
		return 0x5
	case BlockMismatch:
		return 0x2b
	case NoWarps:
		return 0x2a
	case NoRegisters:
		return 0x28
	case NoLocal:
		return 0x2c
	case NoShared:
		return 0x4
	}
	return 0
}

// CEStatus is the code nouveau's microcode leaves in the low half of SCRATCH0.
func (r Reason) CEStatus() uint32 {
	if r == BadBitfield {
		return 3
	}
	return 1
}

// Refusal describes the last method that was Illegal.
type Refusal struct {
	Class  uint16
	Reason Reason
	Method uint32
	Data   uint32
}

// fetch is Memory.Bytes with the address wrapped to the address space and the answer
// held to its contract: at least one byte, at most n.
func (e *Env) fetch(va, n uint64, write bool) ([]byte, *Fault) {
	last := e.Last
	if last == 0 {
		last = vaMask
	}
	va &= last
	n = min(n, last-va+1, Budget)
	b, fault := e.Mem.Bytes(va, int(n), write)
	if fault == nil && len(b) == 0 {
		return nil, &Fault{VA: va, Write: write}
	}
	if uint64(len(b)) > n {
		b = b[:n]
	}
	return b, fault
}
