package api

import (
	"fmt"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// AddRequest describes a virtual GPU to add.
type AddRequest struct {
	// Keys and values as --gpu takes them: name=a,socket=/tmp/a.sock,vram=256MiB.
	// Relative paths are resolved in the folder that the server was started in.
	GPU string `json:"gpu"`
}

// InjectRequest says which fault to plant. It replaces an earlier one.
type InjectRequest struct {
	Kind  string        `json:"kind"`               // lost-interrupt, late-interrupt, hung-engine, translation-fault, off-bus; none ends it
	For   time.Duration `json:"for_ns,omitempty"`   // when it ends; ten seconds if there is no count either
	Count uint64        `json:"count,omitempty"`    // how often it happens; for interrupts, translation faults and accesses of a GPU off the bus
	Delay time.Duration `json:"delay_ns,omitempty"` // of a late interrupt; 100 ms
}

// Injected is the fault that was planted.
type Injected struct {
	GPU string `json:"gpu"`
	InjectRequest
}

// SetRequest changes options of a virtual GPU or of the scheduler. The server
// applies all of them or, with an error, none.
type SetRequest struct {
	// Keys and values: shadow.sync=lazy,weight=200.
	Options string `json:"options"`
}

// Status describes a server, its card and its GPUs.
type Status struct {
	Version string        `json:"version"`
	PID     int           `json:"pid" metric:"-" help:"The server's process."`
	Uptime  time.Duration `json:"uptime_ns" help:"Gauge. Time since the server started."`
	Setup   string        `json:"setup"` // pass-through or virtual
	Card    Card          `json:"card"`
	GPUs    []GPU         `json:"gpus"`
}

// The set-ups.
const (
	SetupPassThrough = "pass-through"
	SetupVirtual     = "virtual"
)

// Card describes the card that a server shares.
type Card struct {
	Kind         string         `json:"kind"`
	VRAM         uint64         `json:"vram" metric:"vram_bytes" help:"Gauge. Bytes of memory."`
	VRAMFree     uint64         `json:"vram_free" metric:"vram_free_bytes" help:"Gauge. Bytes that no GPU and no page tables take."`
	VRAMRoom     uint64         `json:"vram_room" metric:"vram_room_bytes" help:"Gauge. The most bytes that one more GPU of the default chip can have, beside its page tables."`
	ChannelsFree int            `json:"channels_free" help:"Gauge. Channels that are guaranteed to no GPU."`
	Bytes        uint64         `json:"bytes" metric:"moved_bytes" help:"Bytes that engines moved."`
	Interrupts   uint64         `json:"interrupts" help:"Interrupts that the card raised."`
	Faults       CardFaults     `json:"faults" metric:"faults"`
	Programs     *ProgramCounts `json:"programs,omitempty" metric:"programs"` // of guests that run as machine code; absent without umbra-jit
	Interpreted  string         `json:"interpreted,omitempty" help:"Gauge. Whether guests' programs run interpreted, which is slower, because umbra-jit is missing or cannot serve; the status says why."`
	Policy       string         `json:"policy,omitempty"` // how GPUs share the card's time: the scheduler's policy, or slices if the card does it itself, by weight; absent without either
	Ledger       *LedgerNode    `json:"ledger,omitempty"` // card time by guest and, with a scheduler, by group and channel; absent without a policy
}

// ProgramCounts counts what the processes do that run guests' programs as machine code.
type ProgramCounts struct {
	Launches    uint64            `json:"launches" metric:"-" help:"Launches of programs, also of those that ran interpreted."`
	Native      uint64            `json:"native" help:"Warp instructions that ran as machine code."`
	Interpreted uint64            `json:"interpreted" help:"Warp instructions that the processes executed otherwise."`
	Left        uint64            `json:"left" help:"Times that a block came back to the server, for an instruction that only the server executes."`
	Runs        uint64            `json:"runs" help:"Steps of launches in the processes."`
	Compiled    uint64            `json:"compiled" help:"Programs that were compiled."`
	CompileTime time.Duration     `json:"compile_ns" help:"Time that compiling took."`
	Refused     uint64            `json:"refused" help:"Launches of programs that cannot be compiled."`
	Lost        uint64            `json:"lost" help:"Processes that ended, hung, or answered nonsense."`
	Forms       map[string]uint64 `json:"forms,omitempty"`   // instructions without machine code, or that were wrong, by form
	Reasons     map[string]uint64 `json:"reasons,omitempty"` // why programs were not compiled
}

// PolicySlices is the policy of a card that shares its engines itself, in time slices by weight.
const PolicySlices = "slices"

// GPU describes a GPU that guests can attach to: a virtual one, or in
// pass-through the card itself.
type GPU struct {
	Name         string            `json:"name" metric:"gpu,label"`
	Socket       string            `json:"socket"`
	Chip         string            `json:"chip"` // that the guest sees
	VRAM         uint64            `json:"vram" metric:"vram_bytes" help:"Gauge. Bytes of memory that the guest sees."`
	Tables       uint64            `json:"tables" metric:"tables_bytes" help:"Gauge. Bytes of the card's memory that are reserved for its page tables."`
	Channels     int               `json:"channels" metric:"channels_limit" help:"Gauge. The most channels that the guest may have; 0 in pass-through, where it has all."`
	Attached     bool              `json:"attached" help:"Gauge. Whether a client is attached now."`
	ClientPID    int               `json:"client_pid,omitempty" metric:"-" help:"Process of the client that is attached, as the server sees it; absent if it is not known."`
	ClientUser   string            `json:"client_user,omitempty"` // its user: a name, or a number without
	Clients      uint64            `json:"clients" help:"Clients since the GPU was added."`
	Traps        uint64            `json:"traps" help:"Reads and writes of the guest that reached the server; if there are thousands in a second, umbra regs --touched shows which registers they access."`
	Interrupts   uint64            `json:"interrupts" help:"Interrupts to the present or last client."`
	Bytes        uint64            `json:"bytes" metric:"moved_bytes" help:"Bytes that engines moved for the guest."`
	Faults       uint64            `json:"faults" help:"Faults of the guest's work: its mmu_faults, pbdma_errors, engine_errors, window_faults and runaways."`
	Quarantine   string            `json:"quarantine,omitempty" metric:"quarantined,state" help:"Gauge. Whether, and why, nothing of its guest reaches the card; a reset of the GPU ends it."`
	OutOfService string            `json:"out_of_service,omitempty" metric:"out_of_service,state" help:"Gauge. Whether, and why, clients are refused; each new client causes another attempt."`
	Counts       map[string]uint64 `json:"counts" metric:""` // what the guest asked for, and what happened
	RulesBroken  map[string]uint64 `json:"rules_broken" metric:"rules_broken" help:"Requests of the guest that were refused, by rule."`
	Inexact      []InexactWindow   `json:"inexact,omitempty"`
	Unsupported  []Unsupported     `json:"unsupported,omitempty"` // calls, controls and classes that the emulation of the GPU's GSP lacks
	ShadowTime   time.Duration     `json:"shadow_ns,omitempty" help:"Time spent on shadowing its page tables."`
	Share        *Share            `json:"share,omitempty"`               // absent without a scheduler
	CardTime     *LedgerNode       `json:"card_time,omitempty" metric:""` // absent without a scheduler
	Changes      []Change          `json:"changes,omitempty"`             // by this PATCH
}

// Count returns one of the counts, or how often a rule was broken.
func (g *GPU) Count(name string) uint64 { return g.Counts[name] + g.RulesBroken[name] }

// Broken is how often the guest broke any rule.
func (g *GPU) Broken() (n uint64) {
	for _, times := range g.RulesBroken {
		n += times
	}
	return n
}

// Setting is an option in force.
type Setting struct {
	Key       string `json:"key"`                 // as in the configuration file
	Value     string `json:"value"`               // text, as the configuration file and PATCH take it
	Inherited string `json:"inherited,omitempty"` // what the value inherit stands for
	Default   string `json:"default,omitempty"`   // absent if there is none
	Live      bool   `json:"live"`                // PATCH can change it
}

// Change is an option that a PATCH changed. Values are text, as PATCH takes them.
type Change struct {
	Key    string `json:"key"`
	Before string `json:"before"`
	After  string `json:"after"`
}

// ChangesText lists options that were changed: weight=200 (was 50).
func ChangesText(changes []Change) string {
	var out []string
	for _, c := range changes {
		out = append(out, fmt.Sprintf("%s=%s (was %s)", c.Key, c.After, c.Before))
	}
	return strings.Join(out, " ")
}

// InexactWindow is a mapped window that shows the guest wrong data.
type InexactWindow struct {
	Name        string `json:"name"`   // of the counter
	Window      string `json:"window"` // bar1, bar3 or pramin
	Count       uint64 `json:"count" help:"How many pages or times, as unit says."`
	Unit        string `json:"unit"` // of count: pages or times
	Reason      string `json:"reason"`
	Consequence string `json:"consequence"` // for the guest, and what to do
}

// Unsupported is a call, a control or a class that a driver used and that the emulation of GSP lacks.
type Unsupported struct {
	Kind   string `json:"kind"` // control, function or class
	Number uint32 `json:"number" help:"Its number, as NVIDIA's headers have it."`
	Count  uint64 `json:"count" help:"How often the driver used it."`
}

// Share is a GPU's part of the card's time.
type Share struct {
	Name     string `json:"name"`
	Weight   int    `json:"weight"`
	Cap      int    `json:"cap_percent"` // at most this part of the card's time; 0 is no cap
	Priority int    `json:"priority"`
}

// Scheduler describes how the card's time is shared.
type Scheduler struct {
	Policy   string       `json:"policy"`
	Settings []Setting    `json:"settings"`
	Changes  []Change     `json:"changes,omitempty"` // by this PATCH
	Counts   sched.Counts `json:"counts"`            // events that should not happen
	Ledger   *LedgerNode  `json:"ledger,omitempty"`
	Shares   []Share      `json:"shares"`
}

// Reload says what a configuration that was read again changed.
type Reload struct {
	Steps []ReloadStep `json:"steps"`
}

// ReloadStep is one change of the configuration. Either it was done, or it was refused.
type ReloadStep struct {
	What    string `json:"what"` // "gpu NAME", "scheduler", or a key of one or of the file
	Done    string `json:"done,omitempty"`
	Refused string `json:"refused,omitempty"` // why it was not done
}

// Saved is the configuration of a running server.
type Saved struct {
	YAML string `json:"yaml"` // a file that makes the same server again: its options, schedule and GPUs
}

// Attachment says how a machine attaches to a GPU. The arguments give the machine 2 GiB of memory, which must be shared.
type Attachment struct {
	GPU             string   `json:"gpu"`
	Socket          string   `json:"socket"`
	QEMU            []string `json:"qemu"`             // arguments
	CloudHypervisor []string `json:"cloud_hypervisor"` // arguments
	Libvirt         string   `json:"libvirt"`          // elements of a domain
}

// Serving is the line that umbra serve --json writes when it is ready.
type Serving struct {
	Event    string       `json:"event"` // serving
	PID      int          `json:"pid"`
	Socket   string       `json:"socket,omitempty"` // of the whole card, in pass-through
	Control  string       `json:"control,omitempty"`
	Settings []Setting    `json:"settings"`
	QEMU     []string     `json:"qemu,omitempty"` // arguments that attach the whole card
	GPUs     []ServingGPU `json:"gpus,omitempty"`
	Lacks    []string     `json:"lacks,omitempty"` // what the transport lacks that the native one has
}

// ServingGPU is a virtual GPU at the start of a server.
type ServingGPU struct {
	Name     string    `json:"name"`
	Socket   string    `json:"socket"`
	Settings []Setting `json:"settings"`
	QEMU     []string  `json:"qemu"` // arguments that attach it
}
