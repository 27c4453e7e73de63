package interp

import "fmt"

// Cause says what a program did wrong.
type Cause uint8

// The causes.
const (
	NotImplemented     Cause = iota // defined, and missing here
	IllegalInstruction              // the word is no instruction
	BadPC                           // misaligned, or no memory there
	BadRegister                     // beyond those that the launch has
	MisalignedRegister
	BadAddress
	MisalignedAddress
	BadConstant   // beyond a bank, or none bound
	StackOverflow // of the control stack
	StackMismatch // no entry for a join, brk, cont or ret
	BadBarrier    // number or count
	Deadlock      // all warps wait at barriers
	Lost          // with the process that ran it
)

var causes = [...]string{
	"not implemented", "illegal instruction", "bad program counter", "register out of bounds", "misaligned register",
	"address not mapped", "misaligned address", "constant out of bounds", "control stack overflow",
	"control stack mismatch", "bad barrier", "deadlock at barriers", "lost with its process",
}

func (c Cause) String() string { return causes[c] }

// A Fault is why a block ended, and where.
type Fault struct {
	Cause Cause
	PC    uint32 // in the code region
	Text  string // of the instruction, or of what is no instruction
	Block [3]uint32
	Warp  int
	Lane  int    // -1 if the warp did it
	Addr  uint64 // of memory
	What  string // in words, if there is more to say
	Err   error  // of Memory or of a unit, if that refused
}

// Unwrap implements errors.Unwrap.
func (f *Fault) Unwrap() error { return f.Err }

func (f *Fault) Error() string {
	s := fmt.Sprintf("%v at %#x %q, block %v, warp %d", f.Cause, f.PC, f.Text, f.Block, f.Warp)
	if f.Lane >= 0 {
		s += fmt.Sprintf(", lane %d", f.Lane)
	}
	switch f.Cause {
	case BadAddress, MisalignedAddress, BadConstant:
		s += fmt.Sprintf(", address %#x", f.Addr)
	}
	if f.What != "" {
		s += ": " + f.What
	}
	return s
}
