package api

import (
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio"
)

// Report is everything that the server counted since it started.
type Report struct {
	Event  string        `json:"event"` // report
	Uptime time.Duration `json:"uptime_ns"`
	Setup  string        `json:"setup"` // pass-through or virtual
	Card   CardReport    `json:"card"`
	GPUs   []GPUReport   `json:"gpus"`
	Ledger *LedgerNode   `json:"ledger,omitempty"` // absent without a scheduler
}

// CardReport is what the card did for all its guests.
type CardReport struct {
	Channels    ChannelCount    `json:"channels"`
	Classes     []ClassCount    `json:"classes,omitempty"`
	NotExecuted []IgnoredMethod `json:"not_executed,omitempty"`
	Interrupts  uint64          `json:"interrupts"` // raised
	TLB         TLBCount        `json:"tlb"`
	Faults      CardFaults      `json:"faults"`
}

// GPUReport is everything about one GPU.
type GPUReport struct {
	GPU
	Settings    []Setting       `json:"settings,omitempty"` // all its options; only GET /v1/gpus/NAME has them
	Connections ConnectionCount `json:"connections"`
	Messages    []MessageCount  `json:"messages,omitempty"`
	Regions     []RegionCount   `json:"regions,omitempty"`
	Registers   mmio.Report     `json:"registers"`
	Delivery    DeliveryCount   `json:"interrupt_delivery"`
	Work        []WorkCount     `json:"work,omitempty"`          // of a virtual GPU; in pass-through it is the card's
	UnmapTime   time.Duration   `json:"unmap_time_ns,omitempty"` // waited until the card released memory that the client unmapped
}

// ConnectionCount counts what went wrong with clients' connections.
type ConnectionCount struct {
	Refused       uint64 `json:"refused"`        // another client was attached, or the GPU was out of service
	BadStreams    uint64 `json:"bad_streams"`    // ended because of an invalid message
	Panics        uint64 `json:"panics"`         // of the device, contained
	MemoryRefused uint64 `json:"memory_refused"` // ranges of memory beyond a limit of the DMA map
}

// MessageCount counts one command of the vfio-user protocol.
type MessageCount struct {
	Command  string `json:"command"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
	Posted   uint64 `json:"posted"` // without a reply
	Errors   uint64 `json:"errors"`
}

// RegionCount counts the traps of one region.
type RegionCount struct {
	Region string `json:"region"`
	Reads  uint64 `json:"reads"`
	Writes uint64 `json:"writes"`
	Bytes  uint64 `json:"bytes"`
}

// DeliveryCount counts interrupts to the last client that it did not get at once.
type DeliveryCount struct {
	Coalesced uint64 `json:"coalesced"` // with one that was pending
	Masked    uint64 `json:"masked"`    // kept until the client unmasks them
	Unrouted  uint64 `json:"unrouted"`  // the client had given no eventfd
}

// ChannelCount counts what the card fetched.
type ChannelCount struct {
	Doorbells uint64 `json:"doorbells"`
	Entries   uint64 `json:"gpfifo_entries"`
	Words     uint64 `json:"pushbuffer_words"`
	Methods   uint64 `json:"methods"`
	Releases  uint64 `json:"semaphore_releases"`
	Acquires  uint64 `json:"semaphore_acquires"`
	Runlists  uint64 `json:"runlists"`
}

// ClassCount counts the work of one engine class.
type ClassCount struct {
	Class      string `json:"class"` // in hexadecimal: 9039
	Name       string `json:"name"`
	Methods    uint64 `json:"methods"`
	Copies     uint64 `json:"copies"` // and uploads
	Bytes      uint64 `json:"bytes"`
	Semaphores uint64 `json:"semaphores"` // released
	Refused    uint64 `json:"refused"`    // methods
}

// WorkCount counts what the engines of a class moved for one guest.
type WorkCount struct {
	Class  string `json:"class"` // in hexadecimal: 9039
	Name   string `json:"name"`
	Copies uint64 `json:"copies"` // and uploads
	Bytes  uint64 `json:"bytes"`
}

// IgnoredMethod counts a method whose value was stored and which did nothing.
type IgnoredMethod struct {
	Class string `json:"class"`
	Name  string `json:"name"`
	Count uint64 `json:"count"`
}

// TLBCount counts the card's handling of translations.
type TLBCount struct {
	Invalidates uint64 `json:"invalidates"` // requested by the driver or by channels
	Flushes     uint64 `json:"flushes"`     // address spaces flushed for them
	Misses      uint64 `json:"misses"`      // look-ups that walked the page tables
}

// CardFaults counts the card's faults.
type CardFaults struct {
	MMU      uint64 `json:"mmu"`
	PBDMA    uint64 `json:"pbdma"`
	Engine   uint64 `json:"engine"`
	BAR      uint64 `json:"bar"`      // accesses through a BAR to an unmapped page
	Doorbell uint64 `json:"doorbell"` // doorbells of channels that do not exist
}

// Total is the number of faults, without doorbells.
func (f *CardFaults) Total() uint64 { return f.MMU + f.PBDMA + f.Engine + f.BAR }

// LedgerNode accounts for the card's time: of the card, a guest, a group of its
// channels or a channel. Its account is the sum of its children's accounts and
// those of children that have ended.
type LedgerNode struct {
	Kind     string          `json:"kind"` // card, guest, group or channel
	Name     string          `json:"name"`
	Weight   int             `json:"weight"`
	Blocked  string          `json:"blocked,omitempty"` // why it is not scheduled
	Waiting  int             `json:"waiting"`           // entries, now
	OnCard   int             `json:"on_card"`           // entries, now
	Engines  []EngineAccount `json:"engines"`
	Ended    []EngineAccount `json:"ended,omitempty"` // of children that have ended
	Children []LedgerNode    `json:"children,omitempty"`
}

// EngineAccount is a node's account of one engine.
type EngineAccount struct {
	Engine string `json:"engine"`
	sched.Account
	Debt time.Duration `json:"debt_ns"` // time that it is ahead of its share; negative if it is behind
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
	Block     string        `json:"block"`
	Register  string        `json:"register"`
	Offset    uint32        `json:"offset"`
	Instances int           `json:"instances"`
	Size      uint32        `json:"size,omitempty"` // bytes, of a window
	Access    string        `json:"access"`
	Policy    string        `json:"policy"` // virtual, translate or refuse
	Stub      bool          `json:"stub,omitempty"`
	Effect    string        `json:"effect,omitempty"`
	Reads     uint64        `json:"reads"`
	Writes    uint64        `json:"writes"`
	Time      time.Duration `json:"time_ns"` // estimated from a sample
}
