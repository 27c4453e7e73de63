package gsp

// Host carries out what a driver asks of GSP. Its methods return at once and do not call GSP.
type Host interface {
	// NewSpace makes an empty address space. An id is used once.
	NewSpace(id uint64)
	// SetDirectory gives a space its tables; TargetNone takes them away.
	SetDirectory(id, root uint64, in Target)
	// DropSpace ends a space that no channel uses.
	DropSpace(id uint64)
	// OpenChannel makes a channel, which runs from Schedule on. An error, which the host counts, is
	// answered with "no memory".
	OpenChannel(c Channel) error
	CloseChannel(id uint32)
	Schedule(id uint32, on bool)
	// Settled reports whether all of that is complete. GSP holds a reply until then, since a driver uses
	// the memory of a channel for something else once it is freed.
	Settled() bool
	// SetBAR2 sets the first entry of BAR2's root. Zero is none.
	SetBAR2(entry uint64)
	// Announce raises the interrupt that tells the driver of an event in the status queue.
	Announce()
	// Unload follows the reply with which GSP stops: channels and spaces are closed. At a suspend memory
	// has to stay, and the next boot makes them again.
	Unload()
}

// Target is the memory that a page directory lies in.
type Target uint8

// The kinds of memory. Coherent or not, the guest's is one.
const (
	TargetNone Target = iota
	TargetVRAM
	TargetRAM
)

// Space is an address space.
type Space struct {
	ID uint64 `json:"id"`
	// External says that the driver owns the tables. In the other spaces GSP shares them.
	External bool   `json:"external"`
	Root     uint64 `json:"root"`
	Target   Target `json:"target"`
}

// Channel describes a channel to its host.
type Channel struct {
	ID     uint32 `json:"id"`
	Space  uint64 `json:"space"`
	Engine int    `json:"engine"` // an index in Engines
	// Ring is the virtual address of the ring, of so many entries of 8 bytes.
	Ring    uint64 `json:"ring"`
	Entries uint32 `json:"entries"`
	// USERD and Instance are addresses in VRAM, inside of it and aligned.
	USERD    uint64 `json:"userd"`
	Instance uint64 `json:"instance"`
	// Admin says that it is a channel of the driver's kernel.
	Admin bool `json:"admin"`

	// Opened says that the host has the channel, except during a suspend, Scheduled that the driver wants
	// it to run. A host that is given an Opened one had it before a suspend.
	Opened    bool `json:"opened"`
	Scheduled bool `json:"scheduled"`
	Failed    bool `json:"failed"` // it was stopped for good
}
