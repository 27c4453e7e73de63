package config

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/cmd/api"
)

// Scheduler is how virtual GPUs take turns on the card.
type Scheduler struct {
	Policy    string                `yaml:"policy" placeholder:"NAME" default:"auto" live:"" validate:"oneof=auto off none fifo credit band timeslice dfq" help:"How guests take turns on the card. off: there is no scheduler. none: no turns, but accounts. fifo: in the order of submission. credit: fair shares by weight. band: as credit, and the card waits a moment for a guest that used less. timeslice: one guest at a time, for a slice. dfq: fair shares from measurements in between. auto: credit with several GPUs or a control socket, else off."`
	Depth     int                   `yaml:"depth" placeholder:"N" default:"1" live:"" validate:"min=1,max=64" help:"Requests on one engine at once. Higher values hide submission latency, but another guest's request may run first."`
	Slice     time.Duration         `yaml:"slice" placeholder:"TIME" default:"2ms" live:"" validate:"min=100us,max=1s" help:"Credit and band: time after which a request is paused if others wait and have a better claim."`
	Credit    sched.CreditConfig    `yaml:"credit" embed:"" prefix:"credit-"`
	Band      sched.BandConfig      `yaml:"band" embed:"" prefix:"band-"`
	Timeslice sched.TimesliceConfig `yaml:"timeslice" embed:"" prefix:"timeslice-"`
	DFQ       sched.DFQConfig       `yaml:"dfq" embed:"" prefix:"dfq-"`
	Watchdog  sched.WatchdogConfig  `yaml:"watchdog" embed:"" prefix:"watchdog-"`
}

// QueueLimits bound what one guest can make the scheduler do.
type QueueLimits struct {
	Request   time.Duration `yaml:"request" placeholder:"TIME" default:"60s" live:"" validate:"min=0s,max=1h" help:"With a scheduler: engine time of one request after which its channel ends with a fault. 0s: no limit."`
	Queued    int           `yaml:"queued" placeholder:"N" default:"1048576" live:"" validate:"min=1,max=1073741824" help:"With a scheduler: ring entries of a guest that it accepts. More wait in the guest's rings."`
	Creations int           `yaml:"creations" placeholder:"N" default:"10000" live:"" validate:"min=1,max=1073741824" help:"With a scheduler: channels and processes that a guest may create in a second. More are refused."`
}

// SchedulerOff is the policy of a card without a scheduler. SchedulerAuto depends on what
// there is to share.
const (
	SchedulerOff  = "off"
	SchedulerAuto = "auto"
)

// Sharing is how guests share a card's time.
type Sharing int

// The ways to share it.
const (
	Unshared    Sharing = iota // work is given to the card as it comes
	ByScheduler                // in turns, by the Schedule
	BySlices                   // the card shares its engines itself, by weight
)

// Sharing is how GPUs of a checked configuration share the card's time.
func (c *Config) Sharing() Sharing {
	switch {
	case c.Card.Kind == Nvidia:
		return BySlices
	case c.Scheduler.Policy == SchedulerOff:
		return Unshared
	}
	return ByScheduler
}

// has reports whether a key of a GPU has an effect.
func (s Sharing) has(key string) bool {
	return s == ByScheduler || s == BySlices && key == "weight" || find(options(new(CardTime)), key) == nil
}

// WithScheduler says how to get a scheduler.
const WithScheduler = "start the server with scheduler.policy (--sched-policy), for example credit"

// settleScheduler decides what auto is: credit if there are several GPUs, or a control socket by
// which there may come to be several. With a single guest a scheduler costs nothing.
func (c *Config) settleScheduler() {
	if c.Scheduler.Policy != SchedulerAuto {
		return
	}
	c.Scheduler.Policy = SchedulerOff
	if c.Socket == "" && (len(c.gpus) > 1 || c.Control != "") {
		c.Scheduler.Policy = sched.Credit.String()
	}
}

// Schedule is everything about sharing the card's time that may be changed while guests run.
// Its keys are those of the file without "scheduler.": credit.period, limits.request.
type Schedule struct {
	Scheduler
	Limits QueueLimits `yaml:"limits"`
}

// Schedule is what the configuration says of it.
func (c *Config) Schedule() Schedule { return Schedule{c.Scheduler, c.Limits.QueueLimits} }

// Settings lists the options of a running scheduler. Its default policy is the one that auto
// stands for: auto itself is only for the start of the server.
func (s *Schedule) Settings() []api.Setting {
	out := Settings(s)
	out[0].Default = sched.Credit.String()
	return out
}

// Config is what package sched calls it, nil without a scheduler.
func (s *Schedule) Config() (*sched.Config, error) {
	if s.Policy == SchedulerOff {
		return nil, nil
	}
	out := sched.Default()
	if err := out.Policy.UnmarshalText([]byte(s.Policy)); err != nil {
		return nil, err
	}
	out.Depth, out.Slice = s.Depth, s.Slice
	out.Credit, out.Band, out.Timeslice, out.DFQ, out.Watchdog = s.Credit, s.Band, s.Timeslice, s.DFQ, s.Watchdog
	out.Watchdog.Limit = s.Limits.Request
	out.Limits.Queued, out.Limits.Creations = s.Limits.Queued, s.Limits.Creations
	return &out, out.Check()
}

// Change returns a schedule with options changed as keys and values say:
// policy=band,band.grace=1ms. Keys may begin with "scheduler.", too.
func (s Schedule) Change(text string) (Schedule, error) {
	const at = "scheduler"
	settings, err := pairs(at, text, "credit.period=10ms")
	if err != nil {
		return s, err
	}
	for i := range settings {
		p := &settings[i]
		p.key = strings.TrimPrefix(p.key, at+".")
		if policies := sched.Policies(); p.key == "policy" && !slices.Contains(policies, p.value) {
			reason := "must be " + either(policies)
			if p.value == SchedulerAuto || p.value == SchedulerOff {
				reason = "is for the start of the server; " + reason
			}
			return s, &Error{at + ": policy", p.value, reason}
		}
	}
	changed := s
	if err := assign(options(&changed), at, settings); err != nil {
		return s, err
	}
	return changed, nil
}

// CardTime is what a virtual GPU gets of the card's time, if there is a scheduler. A card that shares its engines
// itself has only the weight.
type CardTime struct {
	Weight    int         `yaml:"weight" placeholder:"N" default:"100" live:"" validate:"min=1,max=10000" help:"Share of the card's time in proportion to the weights of the others."`
	Cap       Percent     `yaml:"cap" kind:"soft" placeholder:"PERCENT" default:"0" live:"" validate:"min=0,max=100" help:"Most of an engine's time, in percent, even if it idles otherwise. 0: no cap."`
	Priority  int         `yaml:"priority" kind:"soft" placeholder:"N" default:"0" live:"" validate:"min=0,max=7" help:"A GPU of higher priority always goes first."`
	Limits    GuestLimits `yaml:"limits"`
	Processes Processes   `yaml:"processes"`
}

// GuestLimits are a virtual GPU's own.
type GuestLimits struct {
	Request RequestLimit `yaml:"request" kind:"soft" placeholder:"inherit, or 0s to 1h" default:"inherit" live:"" help:"Longest run of one request. inherit: the server's limits.request. 0s: no limit."`
	Queued  QueueLimit   `yaml:"queued" kind:"soft" placeholder:"inherit, or 1 to 1073741824" default:"inherit" live:"" validate:"min=0,max=1073741824" help:"Ring entries of the guest that the scheduler accepts. More wait in the guest's rings. inherit: the server's limits.queued."`
}

// Processes says which channels of a guest are one process for the scheduler.
type Processes struct {
	Group string `yaml:"group" kind:"soft" placeholder:"HOW" default:"space" validate:"oneof=space channel guest" help:"What is one process for the scheduler: all channels of an address space, each channel, or the whole guest."`
}

// perCent is what of a cap the scheduler calls one.
const perCent = sched.FullCap / 100

// Node is what package sched calls it.
func (t *CardTime) Node() sched.NodeConfig {
	return sched.NodeConfig{Weight: t.Weight, Cap: int(t.Cap) * perCent, Priority: t.Priority, Limit: time.Duration(t.Limits.Request), Queued: int(t.Limits.Queued)}
}

// Grouping is which channels are one process.
func (t *CardTime) Grouping() gate.Grouping {
	return gate.Grouping(slices.Index(gate.Groupings(), t.Processes.Group))
}

// inherited is the value of a virtual GPU's limit that the server's limit stands for.
const inherited = "inherit"

// QueueLimit is how many ring entries of a guest the scheduler accepts: zero is the server's limit.
type QueueLimit int

// String writes the limit.
func (q QueueLimit) String() string {
	if q == 0 {
		return inherited
	}
	return strconv.Itoa(int(q))
}

// UnmarshalText implements encoding.TextUnmarshaler. It takes 0 for inherit.
func (q *QueueLimit) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	if err != nil && string(text) != inherited {
		return fmt.Errorf("%q is neither a whole number nor inherit", text)
	}
	*q = QueueLimit(n)
	return nil
}

// RequestLimit is how long one request of a virtual GPU's guest may run: zero is the server's
// limit, sched.Forever is no limit.
type RequestLimit time.Duration

// maxRequest is the longest limit, as the tag of QueueLimits has it.
const maxRequest = time.Hour

// String writes the limit.
func (r RequestLimit) String() string {
	switch time.Duration(r) {
	case 0:
		return inherited
	case sched.Forever:
		return "0s"
	}
	return timeText(time.Duration(r))
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *RequestLimit) UnmarshalText(text []byte) error {
	if string(text) == inherited {
		*r = 0
		return nil
	}
	d, err := ParseTime(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("%w; 0s is no limit, and inherit is the server's limits.request", err)
	case d < 0 || d > maxRequest:
		return fmt.Errorf("%s: must be 0s to 1h, or inherit", text)
	}
	*r = RequestLimit(cmp.Or(d, sched.Forever))
	return nil
}
