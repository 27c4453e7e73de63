package sched

import (
	"fmt"
	"time"
)

// MaxEngines is how many engines a card may have that work side by side:
// graphics with compute, and copy engines.
const MaxEngines = 4

// Config is how a card is shared. Everything may be changed while it is.
type Config struct {
	Policy    Policy    `json:"policy"`
	Hierarchy Hierarchy `json:"hierarchy"`

	// Depth is how many requests may be on an engine at once. With one, the
	// scheduler alone decides; more hide the way to the card.
	Depth int `json:"depth"`

	// Ahead is how much work an engine may still have before it, as far as it can be
	// foretold, when more is given to it although Depth is reached: so that it need not
	// stand still between short requests. A few requests only; zero is none.
	Ahead time.Duration `json:"ahead"`

	Credit    CreditConfig    `json:"credit"`
	Band      BandConfig      `json:"band"`
	Timeslice TimesliceConfig `json:"timeslice"`
	DFQ       DFQConfig       `json:"dfq"`
	Watchdog  WatchdogConfig  `json:"watchdog"`
	Limits    LimitsConfig    `json:"limits"`
}

// CreditConfig is of the policy credit.
type CreditConfig struct {
	Period time.Duration `json:"period"` // how often credit is given
}

// BandConfig is of the policy band, which has credit's period.
type BandConfig struct {
	Window  time.Duration `json:"window"`  // over which use is measured
	Grace   time.Duration `json:"grace"`   // how long the card waits for who used less
	Chances int           `json:"chances"` // how often for one decision
}

// TimesliceConfig is of the policy timeslice.
type TimesliceConfig struct {
	Slice          time.Duration `json:"slice"`
	WorkConserving bool          `json:"work_conserving"` // an idle holder loses the rest of its slice
	Grace          time.Duration `json:"grace"`           // after so long
	Disengaged     bool          `json:"disengaged"`      // the holder's work is forwarded at once, not up to Depth
}

// DFQConfig is of the policy dfq.
type DFQConfig struct {
	Slice    time.Duration `json:"slice"`    // of each group while it is sampled
	Factor   int           `json:"factor"`   // the free run's length, in times of all sampling
	FreeRun  time.Duration `json:"free_run"` // its length, if not zero
	Requests int           `json:"requests"` // after so many a slice ends early
	Least    int           `json:"least"`    // before so many it does not, up to 4 slices
	Grace    time.Duration `json:"grace"`    // after which who submits nothing is idle
	Window   int           `json:"window"`   // requests of a channel on the card; 0 is all
	Model    bool          `json:"model"`    // charge what sampling foretells, not what was used
}

// WatchdogConfig is about requests that do not end.
type WatchdogConfig struct {
	Limit    time.Duration `json:"limit"`    // of one request, unless the guest has its own; 0 is none
	Grace    time.Duration `json:"grace"`    // between two steps of the escalation
	Offences int           `json:"offences"` // within Within that a guest may have; 0 is any number
	Within   time.Duration `json:"within"`
}

// LimitsConfig bounds what a guest can make the scheduler keep.
type LimitsConfig struct {
	Groups    int `json:"groups"`    // of a guest; more share the last
	Channels  int `json:"channels"`  // of a guest
	Queued    int `json:"queued"`    // entries of a guest that wait
	Creations int `json:"creations"` // nodes of a guest made in a second
}

// Default is credit, on a card with nothing known about it.
func Default() Config {
	return Config{
		Policy:    Credit,
		Depth:     1,
		Ahead:     200 * time.Microsecond,
		Credit:    CreditConfig{Period: 30 * time.Millisecond},
		Band:      BandConfig{Window: time.Second, Grace: 500 * time.Microsecond, Chances: 1},
		Timeslice: TimesliceConfig{Slice: 16 * time.Millisecond, WorkConserving: true, Grace: 500 * time.Microsecond},
		DFQ:       DFQConfig{Slice: 5 * time.Millisecond, Factor: 5, Requests: 96, Least: 5, Grace: 500 * time.Microsecond, Window: 2},
		Watchdog:  WatchdogConfig{Limit: 60 * time.Second, Grace: time.Second, Offences: 3, Within: time.Minute},
		Limits:    LimitsConfig{Groups: 1024, Channels: 128, Queued: 1 << 20, Creations: 10_000},
	}
}

// Bounds of weights, priorities and caps.
const (
	MaxWeight   = 10_000
	MaxPriority = 7
	FullCap     = 1000 // thousandths of an engine
	BaseWeight  = 100  // of a node that says nothing
)

// Forever is the limit of a guest whose requests have none, whatever the card's.
const Forever = time.Duration(-1)

// NodeConfig is what a node may say of itself.
type NodeConfig struct {
	Name     string        `json:"name,omitempty"`   // unique below its parent, if there is one
	Weight   int           `json:"weight"`           // 0 is BaseWeight
	Cap      int           `json:"cap,omitempty"`    // thousandths of each engine; 0 is none
	Priority int           `json:"priority"`         // higher goes first, always
	Policy   Policy        `json:"policy"`           // of its children
	Limit    time.Duration `json:"limit,omitempty"`  // of a guest: of one request; 0 is the card's, Forever none
	Queued   int           `json:"queued,omitempty"` // of a guest: entries that wait; 0 is the card's
}

// bound is what a number must keep to.
type bound struct {
	field           string
	value, min, max int64
	unit            func(int64) string
}

func number(v int64) string   { return fmt.Sprint(v) }
func duration(v int64) string { return time.Duration(v).String() }

func checkBounds(rows []bound) error {
	for _, b := range rows {
		if b.value < b.min || b.value > b.max {
			return &Error{Field: b.field, Value: b.unit(b.value), Reason: fmt.Sprintf("must be %s to %s", b.unit(b.min), b.unit(b.max))}
		}
	}
	return nil
}

// Check says what of the configuration cannot be, as an [Error].
func (c *Config) Check() error {
	if c.Policy == Inherit || c.Policy >= policies {
		return &Error{"policy", c.Policy.String(), "a card's must be one of none, fifo, credit, band, timeslice, dfq"}
	}
	if c.Hierarchy >= hierarchies {
		return &Error{"hierarchy", c.Hierarchy.String(), "must be one of tree, flat-weights, flat"}
	}
	const us, ms, s = int64(time.Microsecond), int64(time.Millisecond), int64(time.Second)
	return checkBounds([]bound{
		{"depth", int64(c.Depth), 1, 64, number},
		{"ahead", int64(c.Ahead), 0, s, duration},
		{"credit.period", int64(c.Credit.Period), ms, s, duration},
		{"band.window", int64(c.Band.Window), 10 * ms, 60 * s, duration},
		{"band.grace", int64(c.Band.Grace), 0, 10 * ms, duration},
		{"band.chances", int64(c.Band.Chances), 0, 16, number},
		{"timeslice.slice", int64(c.Timeslice.Slice), 100 * us, s, duration},
		{"timeslice.grace", int64(c.Timeslice.Grace), 0, s, duration},
		{"dfq.slice", int64(c.DFQ.Slice), 100 * us, s, duration},
		{"dfq.factor", int64(c.DFQ.Factor), 1, 1000, number},
		{"dfq.free_run", int64(c.DFQ.FreeRun), 0, 10 * s, duration},
		{"dfq.requests", int64(c.DFQ.Requests), 1, 1 << 20, number},
		{"dfq.least", int64(c.DFQ.Least), 0, 1 << 20, number},
		{"dfq.grace", int64(c.DFQ.Grace), 0, 100 * ms, duration},
		{"dfq.window", int64(c.DFQ.Window), 0, 1 << 16, number},
		{"watchdog.limit", int64(c.Watchdog.Limit), 0, 3600 * s, duration},
		{"watchdog.grace", int64(c.Watchdog.Grace), us, 600 * s, duration},
		{"watchdog.offences", int64(c.Watchdog.Offences), 0, 1 << 20, number},
		{"watchdog.within", int64(c.Watchdog.Within), ms, 3600 * s, duration},
		{"limits.groups", int64(c.Limits.Groups), 1, 1 << 16, number},
		{"limits.channels", int64(c.Limits.Channels), 1, 1 << 16, number},
		{"limits.queued", int64(c.Limits.Queued), 1, 1 << 30, number},
		{"limits.creations", int64(c.Limits.Creations), 1, 1 << 30, number},
	})
}

// check says what of a node's configuration cannot be.
func (c *NodeConfig) check() error {
	if c.Policy >= policies || c.Policy == DFQ {
		return &Error{"policy", c.Policy.String(), "a node's must be one of inherit, none, fifo, credit, band, timeslice; dfq is the whole card's"}
	}
	limit := c.Limit
	if limit == Forever {
		limit = 0
	}
	return checkBounds([]bound{
		{"weight", int64(c.Weight), 0, MaxWeight, number},
		{"cap", int64(c.Cap), 0, FullCap, number},
		{"priority", int64(c.Priority), 0, MaxPriority, number},
		{"limit", int64(limit), 0, int64(time.Hour), duration},
		{"queued", int64(c.Queued), 0, 1 << 30, number},
	})
}
