// Package worker runs the process that has one guest's client of the host's NVIDIA driver, and speaks with it.
// [Start] is the server's side, and [Main] the process.
//
// The process is the server's own program, as a user without privileges, with an empty environment. It may open the
// card's files only (landlock) and make few system calls (seccomp). Its calls of the driver cannot be interrupted, and so a
// call that does not end in time ends the process. The driver then frees all that the guest had.
//
// The server has three goroutines for a process: one receives, one calls [Events], and one waits for its end. Locks:
// server.turn for a call, then server.mu. In the process one goroutine receives, one makes the driver's calls, and
// one waits for events. Locks: process.mu for a call of the driver, then process.out to send.
package worker

import (
	"os"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card/rm/nvrm"
)

// Worker is one guest's process as the server sees it, or a twin in tests. Objects, spaces and channels have
// numbers that the caller chooses, each kind from 0 on; a number is free again after the free. Calls may come from any
// goroutine, and are carried out in the order in which they come. A call that the process does not answer in
// time ends the process; it and all later ones return [ErrEnded].
type Worker interface {
	// Info describes the card, and Doorbell returns the file of its doorbell (nvrm.DoorbellBytes). The driver keeps what
	// the guest has on the card until the server, too, has unmapped and closed the files of Doorbell and NewVRAM.
	Info() (nvrm.Info, error)
	Doorbell() (*os.File, error)

	// NewVRAM makes an object of the card's memory, in whole pages of 2 MiB. The file maps it, from offset 0 and as a whole.
	NewVRAM(object uint32, size uint64) (*os.File, error)
	// Register makes n bytes of a file at off an object. Both are multiples of 4 KiB.
	Register(object uint32, f *os.File, off, n uint64) error
	// Free frees an object. No space may map it, and the server no longer maps its file: others get the memory.
	Free(object uint32) error

	NewSpace(space uint32) error
	FreeSpace(space uint32) error
	// Apply carries out steps, in their order, until one fails, and returns how many it did.
	Apply(space uint32, steps []Step) (done int, err error)
	// Invalidate makes the card drop its translations of a space.
	Invalidate(space uint32) error

	NewChannel(channel uint32, c Channel) (token uint32, err error)
	FreeChannel(channel uint32) error
	Enable(channel uint32, on bool) error
	SetSlice(channel uint32, us uint64) error
	// Reset ends a channel whose work does not end.
	Reset(channel uint32) error

	// Close ends the process.
	Close() error
}

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
	KindSet  bool
	Kind     uint8
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
	Classes []uint32
}

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
