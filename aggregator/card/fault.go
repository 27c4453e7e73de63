package card

import (
	"fmt"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// Engine is an engine of a card.
type Engine uint8

// The engines that every card counts in the same way. The copy engines follow Copy0.
const (
	Graphics Engine = iota // and programs
	Copy0
	MaxEngines = 12
	NoEngine   = Engine(0xff) // no certain one; of a fault, the part that reads rings and commands
)

func (e Engine) String() string {
	switch e {
	case Graphics:
		return "graphics"
	case NoEngine:
		return "none"
	}
	return fmt.Sprintf("copy %d", e-Copy0)
}

// EngineSet is a set of engines: bit n is engine n.
type EngineSet uint32

// Kind says what kind of fault stopped a channel.
type Kind uint8

// The kinds.
const (
	Translation    Kind = iota // an access to an address without a page, or against the page's rights
	BadPointer                 // GP_GET or GP_PUT is outside the ring
	BadEntry                   // a ring entry that is none
	BadHeader                  // a command header that is none
	NoMethod                   // a method that no engine accepts
	SoftwareMethod             // a method of a subchannel without an engine: the driver's own
	BadSemaphore               // a semaphore operation that is none
	BadMethod                  // the engine's class has no such method
	BadClass                   // the engine has no such class
	BadData                    // the engine refused a method because of its data
	ProgramError               // a program did what it must not
	Broken                     // the card itself failed at work for the channel
)

// Source is the part of a card that reports a kind of fault.
type Source uint8

// The sources.
const (
	MMU    Source = iota // the channel has ended
	Reader               // of rings and commands: the channel is held until its driver has handled the fault
	Unit                 // an engine: likewise, and the engine waits with it
	Failed               // the card: nothing of the channel is reported to its driver
)

// kinds are the rows of the kinds.
var kinds = [...]struct {
	name string
	from Source
}{
	Translation: {"an address without a page", MMU},
	BadPointer:  {"a ring pointer outside the ring", Reader}, BadEntry: {"an illegal ring entry", Reader},
	BadHeader: {"an illegal command header", Reader}, NoMethod: {"a method without an engine", Reader},
	SoftwareMethod: {"a software method", Reader}, BadSemaphore: {"an illegal semaphore operation", Reader},
	BadMethod: {"an illegal method", Unit}, BadClass: {"an illegal class", Unit}, BadData: {"illegal data of a method", Unit},
	ProgramError: {"an error of a program", Unit},
	Broken:       {"a failure of the card", Failed},
}

func (k Kind) String() string { return kinds[k].name }

// From returns the part of the card that reports faults of the kind.
func (k Kind) From() Source { return kinds[k].from }

// Fault says why a card stopped a channel. Fields that a kind has no use for are zero.
type Fault struct {
	Kind   Kind
	Engine Engine

	// Of a Translation. A card that does not know the address leaves it zero.
	VA      uint64
	Write   bool
	Program bool // a program accessed it, not the engine itself
	Reason  shadowpt.Reason

	// Of a Reader or a Unit: the method.
	Subchannel uint8
	Class      uint16
	Method     uint32 // byte offset
	Data       uint32

	// Code is the card's own number of the reason, for a face of the same chip. It may be 0.
	Code uint64
	// Text says for people what a program did, or why the card failed.
	Text string
}

// String says for people why the channel stopped, without the engine.
func (f Fault) String() string {
	text := f.Kind.String()
	switch f.Kind.From() {
	case MMU:
		access := "read"
		if f.Write {
			access = "write"
		}
		text = fmt.Sprintf("%s of %#x, %v", access, f.VA, f.Reason)
	case Reader, Unit:
		if f.Method != 0 {
			text += fmt.Sprintf(" %#x of class %04x with data %#x", f.Method, f.Class, f.Data)
		}
	}
	if f.Text != "" {
		text += ": " + f.Text
	}
	return text
}

// MemoryFault reports whether r, the result of recover in a function that called
// debug.SetPanicOnFault, is a memory fault of the process. A [Mapping] of another
// process's memory may cause one. Any other panic is a bug, and MemoryFault panics again.
func MemoryFault(r any) bool {
	if r == nil {
		return false
	}
	if _, fault := r.(interface{ Addr() uintptr }); !fault {
		panic(r)
	}
	return true
}
