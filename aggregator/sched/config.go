package sched

import (
	"fmt"
	"time"
)

// MaxEngines is how many engines a card may have that work side by side: graphics with
// compute, and copy engines.
const MaxEngines = 4

// Config is how a card is shared. All of it may change under load. Beside their names in JSON, fields
// have the tags of package cmd/config, where a user may set them.
type Config struct {
	Policy Policy `json:"policy"`

	// Depth is how many requests may be on an engine at once. Higher values hide submission
	// latency, but another guest's request may run first.
	Depth int `json:"depth"`

	// Ahead is the longest request that is forwarded although Depth is reached, and the
	// most work that the engine may still have then. Zero turns this off.
	Ahead time.Duration `json:"ahead_ns"`

	// Slice is how long a request may have an engine, under credit and band, before it is paused
	// for others with a better claim. Timeslice and dfq have slices of their own.
	Slice time.Duration `json:"slice_ns"`

	Credit    CreditConfig    `json:"credit"`
	Band      BandConfig      `json:"band"`
	Timeslice TimesliceConfig `json:"timeslice"`
	DFQ       DFQConfig       `json:"dfq"`
	Watchdog  WatchdogConfig  `json:"watchdog"`
	Limits    LimitsConfig    `json:"limits"`
}

// CreditConfig configures the policies credit and band, and caps under any policy.
type CreditConfig struct {
	Period time.Duration `json:"period_ns" yaml:"period" placeholder:"TIME" default:"30ms" live:"" validate:"min=1ms,max=1s" help:"Credit and band: interval at which guests get credit."`
}

// BandConfig configures the policy band.
type BandConfig struct {
	Window time.Duration `json:"window_ns" yaml:"window" placeholder:"TIME" default:"1s" live:"" validate:"min=10ms,max=1m" help:"Band: time over which use is measured."`
	Grace  time.Duration `json:"grace_ns" yaml:"grace" placeholder:"TIME" default:"500us" live:"" validate:"min=0s,max=10ms" help:"Band: time for which the card waits for the guest that had the last turn and used less. 0s: it does not wait."`
}

// TimesliceConfig configures the policy timeslice.
type TimesliceConfig struct {
	Slice time.Duration `json:"slice_ns" yaml:"slice" placeholder:"TIME" default:"16ms" live:"" validate:"min=100us,max=1s" help:"Timeslice: length of a slice, and time after which a request is paused if others wait."`
}

// DFQConfig configures the policy dfq.
type DFQConfig struct {
	Slice   time.Duration `json:"slice_ns" yaml:"slice" placeholder:"TIME" default:"5ms" live:"" validate:"min=100us,max=1s" help:"DFQ: time for which each process has the card to itself while it is measured, and after which a request that delays others is paused."`
	Factor  int           `json:"factor" yaml:"factor" placeholder:"N" default:"5" live:"" validate:"min=1,max=1000" help:"DFQ: length of the free run of all processes, as a multiple of all the slices before it."`
	FreeRun time.Duration `json:"free_run_ns" yaml:"free-run" name:"free-run" placeholder:"TIME" default:"0s" live:"" validate:"min=0s,max=10s" help:"DFQ: length of the free run of all processes. 0s: by the factor."`
	Model   bool          `json:"model" yaml:"model" default:"false" live:"" negatable:"" help:"DFQ: charge what the slices foretell instead of what was used, as published. A guest can cheat it."`
}

// WatchdogConfig is about requests that do not end.
type WatchdogConfig struct {
	Limit    time.Duration `json:"limit_ns" kong:"-"` // of one request, unless the guest has its own; 0 is none
	Grace    time.Duration `json:"grace_ns" yaml:"grace" placeholder:"TIME" default:"1s" live:"" validate:"min=1us,max=10m" help:"Time for which a request over limits.request keeps the engine before its channel is ended, and the longest time that ending it may take."`
	Offences int           `json:"offences" yaml:"offences" placeholder:"N" default:"3" live:"" validate:"min=0,max=1048576" help:"Requests over limits.request within a minute after which a guest is quarantined. 0: never."`
}

// LimitsConfig bounds what a guest can make the scheduler keep.
type LimitsConfig struct {
	Channels  int `json:"channels"`  // of a guest, and groups
	Queued    int `json:"queued"`    // entries of a guest that wait
	Creations int `json:"creations"` // nodes of a guest made in a second
}

// Default is the policy credit.
func Default() Config {
	return Config{
		Policy:    Credit,
		Depth:     1,
		Ahead:     200 * time.Microsecond,
		Slice:     2 * time.Millisecond,
		Credit:    CreditConfig{Period: 30 * time.Millisecond},
		Band:      BandConfig{Window: time.Second, Grace: 500 * time.Microsecond},
		Timeslice: TimesliceConfig{Slice: 16 * time.Millisecond},
		DFQ:       DFQConfig{Slice: 5 * time.Millisecond, Factor: 5},
		Watchdog:  WatchdogConfig{Limit: 60 * time.Second, Grace: time.Second, Offences: 3},
		Limits:    LimitsConfig{Channels: 128, Queued: 1 << 20, Creations: 10_000},
	}
}

// Bounds of weights, priorities and caps.
const (
	MaxWeight   = 10_000
	MaxPriority = 7
	FullCap     = 1000 // thousandths of an engine
	BaseWeight  = 100  // of a node whose Weight is zero
)

// Forever is the Limit of a guest whose requests have no limit.
const Forever = time.Duration(-1)

// NodeConfig is the configuration of a node.
type NodeConfig struct {
	Name     string        `json:"name,omitempty"`     // for people
	Weight   int           `json:"weight"`             // 0 is BaseWeight
	Cap      int           `json:"cap,omitempty"`      // thousandths of each engine; 0 is none
	Priority int           `json:"priority"`           // higher always goes first
	Limit    time.Duration `json:"limit_ns,omitempty"` // of a guest: of one request; 0 is the card's
	Queued   int           `json:"queued,omitempty"`   // of a guest: entries that wait; 0 is the card's
}

// Error is a parameter with a value that it cannot have.
type Error struct {
	Field  string // as in the configuration: credit.period
	Value  string
	Reason string // what is accepted
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Field, e.Value, e.Reason) }

// Within returns an error if v is outside of its bounds.
func Within[T int | time.Duration](field string, v, low, high T) error {
	if v < low || v > high {
		return &Error{field, fmt.Sprint(v), fmt.Sprintf("must be %v to %v", low, high)}
	}
	return nil
}

// First returns the first error, nil if there is none.
func First(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Check returns the first [Error] of the configuration.
func (c *Config) Check() error {
	const us, ms, s = time.Microsecond, time.Millisecond, time.Second
	if !c.Policy.known() {
		return unknownPolicy(c.Policy.String())
	}
	return First(
		Within("depth", c.Depth, 1, 64),
		Within("ahead", c.Ahead, 0, s),
		Within("slice", c.Slice, 100*us, s),
		Within("credit.period", c.Credit.Period, ms, s),
		Within("band.window", c.Band.Window, 10*ms, 60*s),
		Within("band.grace", c.Band.Grace, 0, 10*ms),
		Within("timeslice.slice", c.Timeslice.Slice, 100*us, s),
		Within("dfq.slice", c.DFQ.Slice, 100*us, s),
		Within("dfq.factor", c.DFQ.Factor, 1, 1000),
		Within("dfq.free-run", c.DFQ.FreeRun, 0, 10*s),
		Within("limits.request", c.Watchdog.Limit, 0, 3600*s),
		Within("watchdog.grace", c.Watchdog.Grace, us, 600*s),
		Within("watchdog.offences", c.Watchdog.Offences, 0, 1<<20),
		Within("limits.channels", c.Limits.Channels, 1, 1<<16),
		Within("limits.queued", c.Limits.Queued, 1, 1<<30),
		Within("limits.creations", c.Limits.Creations, 1, 1<<30),
	)
}

// Check returns the first [Error] of the configuration.
func (c *NodeConfig) Check() error {
	weight, limit := c.Weight, c.Limit
	if weight == 0 {
		weight = BaseWeight
	}
	if limit == Forever {
		limit = 0
	}
	return First(
		Within("weight", weight, 1, MaxWeight),
		Within("cap", c.Cap, 0, FullCap),
		Within("priority", c.Priority, 0, MaxPriority),
		Within("limit", limit, 0, time.Hour),
		Within("queued", c.Queued, 0, 1<<30),
	)
}
