package card

import (
	"fmt"
	"sync/atomic"
)

// Faults are what stops channels and is the server's to report: of a card, or of a guest on it.
type Faults struct {
	ProgramFaults    atomic.Uint64          `count:"program_faults" help:"Programs that were stopped, because they did what they must not; the log says what and where."`
	LastProgramFault atomic.Pointer[string] // what the last of them did
	UnmappedDMA      UnmappedDMA            // in the host's memory, or by the guest's bus addresses
}

// NoteProgram counts a program that was stopped.
func (f *Faults) NoteProgram(report string) {
	f.LastProgramFault.Store(&report) // before the count: who sees the count finds it
	f.ProgramFaults.Add(1)
}

// UnmappedDMA counts a card's accesses to bus addresses that are not mapped, or not for a write. Equal
// ones in a row count once. Any goroutine may use it.
type UnmappedDMA struct {
	N    atomic.Uint64
	Last atomic.Pointer[string]
}

// Note counts an access.
func (s *UnmappedDMA) Note(addr uint64, write bool) {
	at := fmt.Sprintf("read at %#x", addr)
	if write {
		at = fmt.Sprintf("write at %#x", addr)
	}
	if last := s.Last.Swap(&at); last == nil || *last != at { // before the count: who sees the count finds it
		s.N.Add(1)
	}
}
