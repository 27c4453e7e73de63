package api

import (
	"fmt"
	"net/http"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/serve"
)

// Backend is what is controlled. Its errors are [Error], or the server's own
// failure.
type Backend interface {
	Status() (Status, error)
	Add(AddRequest) (GPU, error)
	Remove(name string, force bool) (serve.GPUReport, error)
	Set(name string, s SetRequest) (GPU, error)
	Schedule() (Schedule, error)
	SetSchedule(s SetRequest) (Schedule, error)
	Show(name string) (Shown, error)
	Registers(gpu string) (serve.PolicyTable, error) // of one GPU, or of all ("")
	Report() (serve.Report, error)
}

// AddRequest describes a virtual GPU as --gpu does: name=a,socket=a.sock,vram=256MiB.
// Paths are absolute, or relative to the server's working folder.
type AddRequest struct {
	GPU string `json:"gpu"`
}

// SetRequest changes options of a virtual GPU that is there, or of the scheduler, as
// keys and values: shadow.sync=lazy,shadow.scan=full. All of them or, with an error,
// none.
type SetRequest struct {
	Options string `json:"options"`
}

// Status is what is served, and to whom.
type Status struct {
	Version string  `json:"version"`
	PID     int     `json:"pid"`
	Seconds float64 `json:"seconds"` // since it began
	Setup   string  `json:"setup"`   // SetupPassThrough or SetupVirtual
	Card    Card    `json:"card"`
	GPUs    []GPU   `json:"gpus"`
}

// The set-ups.
const (
	SetupPassThrough = "pass-through"
	SetupVirtual     = "virtual"
)

// Card is the card.
type Card struct {
	Kind       string           `json:"kind"`
	VRAM       uint64           `json:"vram"`          // bytes
	Free       uint64           `json:"vram_free"`     // bytes that GPUs and their tables have left
	Room       uint64           `json:"vram_room"`     // bytes that one more GPU can have of it beside its tables
	Channels   int              `json:"channels_free"` // that no GPU has for sure
	Bytes      uint64           `json:"bytes"`         // moved by engines
	Interrupts uint64           `json:"interrupts"`
	Faults     serve.FaultCount `json:"faults"`
	// How the card's time is shared, and what should not have happened, if there is a
	// scheduler.
	Scheduler *sched.Config     `json:"scheduler,omitempty"`
	Schedule  *sched.Counts     `json:"scheduler_counts,omitempty"`
	Ledger    *serve.LedgerNode `json:"ledger,omitempty"` // who had how much
}

// Schedule is how the card's time is shared.
type Schedule struct {
	Options map[string]any    `json:"options"`          // that SetSchedule can change
	Counts  *sched.Counts     `json:"counts"`           // of what should not have happened
	Ledger  *serve.LedgerNode `json:"ledger,omitempty"` // who had how much
	Shares  []ShareOf         `json:"shares"`           // what the GPUs are to have
	Was     map[string]any    `json:"was,omitempty"`    // the values before, of options that SetSchedule changed
}

// ShareOf is what a GPU is to have of the card's time.
type ShareOf struct {
	Name     string `json:"name"`
	Weight   int    `json:"weight"`
	Cap      int    `json:"cap"` // percent; 0 is none
	Priority int    `json:"priority"`
}

// GPU is a GPU that guests can attach to.
type GPU struct {
	Name       string            `json:"name"`
	Socket     string            `json:"socket"`
	VRAM       uint64            `json:"vram"`     // bytes
	Tables     uint64            `json:"tables"`   // bytes
	Channels   int               `json:"channels"` // at most
	Attached   bool              `json:"attached"`
	Clients    uint64            `json:"clients"` // so far
	Bytes      uint64            `json:"bytes"`   // moved by engines
	Work       []serve.WorkCount `json:"work,omitempty"`
	Traps      uint64            `json:"traps"`
	Interrupts uint64            `json:"interrupts"`           // to the last client
	Quarantine string            `json:"quarantine,omitempty"` // why the guest is quarantined, if it is
	// OutOfService is why clients are refused, if they are.
	OutOfService string             `json:"out_of_service,omitempty"`
	Options      map[string]any     `json:"options,omitempty"`   // that Set can change
	Was          map[string]any     `json:"was,omitempty"`       // the values before, of options that Set changed
	ShadowNS     int64              `json:"shadow_ns,omitempty"` // time spent on the shadows of its page tables
	CardTime     *serve.CardTime    `json:"card_time,omitempty"` // if there is a scheduler
	Counts       []aggregator.Count `json:"counts,omitempty"`
	Inexact      []serve.Inexact    `json:"inexact,omitempty"` // mapped windows that do not show what they should
}

// Shown is a GPU with all that it was told, or has otherwise.
type Shown struct {
	GPU
	Settings []Setting `json:"settings"`
}

// Setting is an option that is in force.
type Setting struct {
	Key   string `json:"key"`
	Value any    `json:"value"`
	Live  bool   `json:"live"` // Set can change it
}

// Count returns one of the counts by name.
func (g *GPU) Count(name string) uint64 {
	for _, c := range g.Counts {
		if c.Name == name {
			return c.N
		}
	}
	return 0
}

// Broken sums up the rules that the guest broke.
func (g *GPU) Broken() (n uint64) {
	for _, c := range g.Counts {
		if c.Rule {
			n += c.N
		}
	}
	return n
}

// Error is an answer that says no.
type Error struct {
	Code    int    `json:"-"` // HTTP's
	Message string `json:"error"`
}

func (e *Error) Error() string { return e.Message }

// NotFound, Conflict and Invalid make errors: there is no such thing; it cannot be
// done as things are; it makes no sense.
func NotFound(format string, args ...any) error { return newError(http.StatusNotFound, format, args) }
func Conflict(format string, args ...any) error { return newError(http.StatusConflict, format, args) }
func Invalid(format string, args ...any) error  { return newError(http.StatusBadRequest, format, args) }

func newError(code int, format string, args []any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}
