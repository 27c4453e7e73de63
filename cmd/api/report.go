package api

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio"
)

// Numbers have the names of the counters that they are read from, or name them in the tag from.

// Report is everything that the server counted since it started.
type Report struct {
	Event  string        `json:"event"` // report
	Uptime time.Duration `json:"uptime_ns" help:"Gauge. Time since the server started."`
	Setup  string        `json:"setup"` // pass-through or virtual
	Card   CardReport    `json:"card" metric:"card"`
	GPUs   []GPUReport   `json:"gpus" metric:"gpu"`
}

// CardReport is what the card did for all its guests.
type CardReport struct {
	Card
	Channels    ChannelCount    `json:"channels" metric:"channel"`
	Classes     []ClassCount    `json:"classes,omitempty" metric:"class"`
	NotExecuted []IgnoredMethod `json:"not_executed,omitempty"`
	TLB         TLBCount        `json:"tlb" metric:"tlb"`
	Scheduler   *sched.Counts   `json:"scheduler,omitempty" metric:"scheduler"` // events that should not happen; absent without a scheduler
}

// GPUReport is everything about one GPU.
type GPUReport struct {
	GPU
	Settings    []Setting       `json:"settings,omitempty"` // all its options; only GET /v1/gpus/NAME has them
	Connections ConnectionCount `json:"connections" metric:"connections"`
	Stopped     []Stopped       `json:"stopped,omitempty"` // The last times that the card stopped a channel, the oldest first.
	Messages    []MessageCount  `json:"messages,omitempty" metric:"command"`
	Regions     []RegionCount   `json:"regions,omitempty" metric:"region"`
	Registers   mmio.Report     `json:"registers" metric:"register"`
	Delivery    DeliveryCount   `json:"interrupt_delivery" metric:"interrupts"`
	Work        []WorkCount     `json:"work,omitempty" metric:"work"` // of a virtual GPU; in pass-through it is the card's
	UnmapTime   time.Duration   `json:"unmap_time_ns,omitempty" help:"Time until the card released memory that the client unmapped."`
}

// Stopped is a time at which the card stopped a channel of a virtual GPU.
type Stopped struct {
	Time    time.Time `json:"time"`
	Channel int       `json:"channel" help:"The guest's number of it."`
	Engine  string    `json:"engine"` // none: the reader of rings and commands.
	Reason  string    `json:"reason"` // The address or the method, and why it was refused.
}

// ConnectionCount counts what went wrong with clients' connections.
type ConnectionCount struct {
	Refused       uint64 `json:"refused" help:"Connections refused, because a client was attached or the GPU was out of service; give each guest a GPU and a socket of its own."`
	BadStreams    uint64 `json:"bad_streams" help:"Connections ended because of an invalid message; the client does not speak vfio-user."`
	Panics        uint64 `json:"panics" help:"Failures of the device, which were contained; report a bug."`
	MemoryRefused uint64 `json:"memory_refused" help:"Ranges of memory beyond a limit of the DMA map; the log names the limit."`
}

// MessageCount counts one command of the vfio-user protocol.
type MessageCount struct {
	Command  string `json:"command" metric:"command,label"`
	Messages uint64 `json:"messages" help:"Messages with this command."`
	Bytes    uint64 `json:"bytes" help:"Bytes of these messages, headers included."`
	Posted   uint64 `json:"posted" help:"Messages that need no reply."`
	Errors   uint64 `json:"errors" help:"Messages that failed."`
}

// RegionCount counts the traps of one region.
type RegionCount struct {
	Region string `json:"region" metric:"region,label"`
	Reads  uint64 `json:"reads" help:"Reads that trapped."`
	Writes uint64 `json:"writes" help:"Writes that trapped."`
	Bytes  uint64 `json:"bytes" help:"Bytes read or written by them."`
}

// DeliveryCount counts interrupts to the last client that it did not get at once.
type DeliveryCount struct {
	Masked   uint64 `json:"masked" help:"Interrupts kept until the client unmasks them."`
	Unrouted uint64 `json:"unrouted" help:"Interrupts without a receiver, because the client had given no eventfd or had disconnected."`
}

// ChannelCount counts what the card fetched.
type ChannelCount struct {
	Doorbells uint64 `json:"doorbells" help:"Doorbells that announced work to the card."`
	Entries   uint64 `json:"gpfifo_entries" from:"GPEntries" help:"Ring entries fetched."`
	Words     uint64 `json:"pushbuffer_words" help:"Pushbuffer words fetched."`
	Methods   uint64 `json:"methods" help:"Methods given to the host or an engine."`
	Releases  uint64 `json:"semaphore_releases" help:"Semaphores that the host released."`
	Acquires  uint64 `json:"semaphore_acquires" help:"Semaphores that the host acquired."`
	Runlists  uint64 `json:"runlists" help:"Runlists committed."`
}

// ClassCount counts the work of one engine class.
type ClassCount struct {
	Class      string `json:"class" metric:"class,label"` // in hexadecimal: 9039
	Name       string `json:"name"`
	Methods    uint64 `json:"methods" help:"Methods executed."`
	Copies     uint64 `json:"copies" from:"Launches" help:"Copies, uploads and programs started."`
	Bytes      uint64 `json:"bytes" help:"Bytes that these moved."`
	Semaphores uint64 `json:"semaphores" help:"Semaphores that the engine released."`
	Refused    uint64 `json:"refused" from:"Illegal" help:"Methods refused, because the program uses a feature that this card does not have."`
}

// WorkCount counts what the engines of a class did for one guest.
type WorkCount struct {
	Class  string `json:"class" metric:"class,label"` // in hexadecimal: 9039
	Name   string `json:"name"`
	Copies uint64 `json:"copies" help:"Copies, uploads and programs started for the guest."`
	Bytes  uint64 `json:"bytes" help:"Bytes that these moved."`
}

// IgnoredMethod counts a method whose value was stored and which did nothing.
type IgnoredMethod struct {
	Class string `json:"class"`
	Name  string `json:"name"`
	Count uint64 `json:"count" help:"Methods that would start work which this card does not do, such as drawing; their values were stored, without effect."`
}

// TLBCount counts the card's handling of translations.
type TLBCount struct {
	Invalidates uint64 `json:"invalidates" help:"Invalidates requested by the driver or by channels."`
	Flushes     uint64 `json:"flushes" from:"TLBFlushes" help:"Address spaces flushed for these."`
	Misses      uint64 `json:"misses" from:"TLBMisses" help:"Look-ups that walked the page tables."`
}

// CardFaults counts the card's faults.
type CardFaults struct {
	MMU      uint64 `json:"mmu" from:"MMUFaults" help:"Accesses of channels to addresses without a page."`
	PBDMA    uint64 `json:"pbdma" from:"PBDMAErrors" help:"PBDMA errors, software methods included."`
	Engine   uint64 `json:"engine" from:"EngineErrors" help:"Methods that an engine refused."`
	BAR      uint64 `json:"bar" from:"BARFaults" help:"Accesses through a BAR to an unmapped page."`
	Doorbell uint64 `json:"doorbell" from:"UnboundDoorbells" help:"Doorbells of channels that are not bound."`
}

// Total is the number of faults, without doorbells.
func (f *CardFaults) Total() uint64 { return f.MMU + f.PBDMA + f.Engine + f.BAR }

// LedgerNode accounts for the card's time: of the card, a guest, a group of its
// channels or a channel. Its account is the sum of its children's accounts and
// those of children that have ended.
type LedgerNode struct {
	Kind     string          `json:"kind"` // card, guest, group or channel
	Name     string          `json:"name"`
	Weight   int             `json:"weight" help:"Gauge. Its share in proportion to the weights of its siblings."`
	Blocked  string          `json:"blocked,omitempty"` // why it is not scheduled
	Waiting  int             `json:"waiting" help:"Gauge. Entries that wait."`
	OnCard   int             `json:"on_card" help:"Gauge. Entries that are on the card."`
	Engines  []EngineAccount `json:"engines" metric:"engine"`
	Ended    []EngineAccount `json:"ended,omitempty"` // of children that have ended
	Children []LedgerNode    `json:"children,omitempty"`
}

// EngineAccount is a node's account of one engine.
type EngineAccount struct {
	Engine string `json:"engine" metric:"engine,label"`
	sched.Account
	Debt time.Duration `json:"debt_ns" help:"Gauge. Time that it is ahead of its share; negative if it is behind."`
}

// Total is the sum of the accounts of all engines.
func Total(accounts []EngineAccount) (out sched.Account) {
	for i := range accounts {
		out.Add(&accounts[i].Account)
	}
	return out
}

// RegisterTable lists the registers of a GPU, with counts.
type RegisterTable struct {
	GPUs []string   `json:"gpus,omitempty"` // whose counts are summed up here
	Rows []Register `json:"rows"`
	// Offsets that guests accessed and no row declares. They are storage of the
	// guest's own, without effect.
	Undeclared []mmio.Hole `json:"undeclared,omitempty"`
}

// Register is one row of the register table.
type Register struct {
	Chip      string        `json:"chip"`
	Block     string        `json:"block"`
	Register  string        `json:"register"`
	Offset    uint32        `json:"offset" help:"Address in BAR0 of the first instance."`
	Instances int           `json:"instances" help:"Registers in this row."`
	Size      uint32        `json:"size,omitempty" help:"Bytes of a window."`
	Access    string        `json:"access"`
	Policy    string        `json:"policy"` // virtual, translate or refuse
	Stub      bool          `json:"stub,omitempty"`
	Effect    string        `json:"effect,omitempty"`
	Reads     uint64        `json:"reads" help:"Reads by guests."`
	Writes    uint64        `json:"writes" help:"Writes by guests."`
	Time      time.Duration `json:"time_ns" help:"Time spent on these accesses, estimated from a sample."`
}
