// Package worker runs the process that has one guest's client of the host's NVIDIA driver, and speaks with it.
// [Start] is the server's side, and [Main] the process.
//
// The process is the server's own program, as a user without privileges, with an empty environment. It may open the
// card's files only (landlock) and make few system calls (seccomp). Its calls of the driver cannot be interrupted, and so a
// call that does not end in time ends the process. The driver then frees all that the guest had.
//
// The server has three goroutines for a process: one receives, one calls [Events], and one waits for its end. Locks:
// Worker.turn for a call, then Worker.mu. In the process one goroutine receives, one makes the driver's calls, and
// one waits for events. Locks: process.mu for a call of the driver, then process.out to send.
package worker

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// Op is what a step does.
type Op uint32

// The operations.
const (
	Map    Op = iota
	Unmap     // what the object's maps map in the range
	Pause     // the space's channels leave the card
	Resume    // they may run again
)

// Step is a step of Apply. It is sent as it lies in memory.
type Step struct {
	Op       Op
	Object   uint32
	VA       uint64
	Size     uint64
	Offset   uint64 // in the object, of Map
	Page     uint32 // of Map: 4 KiB, 64 KiB or 2 MiB
	ReadOnly bool
	Kind     uint8 // of the pages, 0 is the driver's choice
}

// Channel describes a channel. Own is the object with its notifier and USERD.
type Channel struct {
	Space   uint32
	Engine  int32 // nvrm.Graphics or a copy engine
	Ring    uint64
	Entries uint32
	Own     uint32
	USERD   uint64
	Slice   uint64 // microseconds
	Classes Classes
}

// Classes are those of the objects that a channel may have; 0 is none.
type Classes [8]uint32

// Events receives what happens, on a goroutine of the Worker. It must not call the Worker.
type Events interface {
	// Completed reports that work has ended on an engine that the guest has channels on.
	Completed(engine int32)
	// Stopped reports that the driver stopped a channel. Fault is of an MMU fault (Xid 31), else zero.
	Stopped(channel uint32, xid uint32, f nvrm.Fault)
	// Ended reports that the process has ended, and why.
	Ended(err error)
}

// Config says how a process is started.
type Config struct {
	Command   []string // of the process: the program, which must be the server's own ("/proc/self/exe"), and arguments
	Minor     int      // of the card: /dev/nvidia<minor>
	AnyDriver bool     // also a driver's release that was never tried
	User      string   // whom the process becomes, if the server is root
	Timeout   time.Duration
	Log       func(format string, args ...any)
}
