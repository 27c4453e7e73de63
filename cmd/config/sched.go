package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Scheduler is how virtual GPUs take turns on the card.
type Scheduler struct {
	Policy    string    `yaml:"policy" placeholder:"NAME" def:"auto" live:"" oneof:"auto,off,none,fifo,credit,band,timeslice,dfq" help:"How guests take turns on the card. off: there is no scheduler. none: no turns, but accounts. fifo: in the order of submission. credit: fair shares by weight. band: credit, and the card waits a moment for a guest that used less. timeslice: one guest at a time, for a slice. dfq: fair shares from measurements in between. auto: credit with several GPUs or a control socket, else off."`
	Depth     int       `yaml:"depth" placeholder:"N" def:"1" live:"" min:"1" max:"64" help:"How many requests may be on an engine at once. Higher values hide submission latency, but another guest's request may run first."`
	Credit    Credit    `yaml:"credit" embed:"" prefix:"credit-"`
	Band      Band      `yaml:"band" embed:"" prefix:"band-"`
	Timeslice Timeslice `yaml:"timeslice" embed:"" prefix:"timeslice-"`
	DFQ       DFQ       `yaml:"dfq" embed:"" prefix:"dfq-"`
	Watchdog  Watchdog  `yaml:"watchdog" embed:"" prefix:"watchdog-"`
}

// Credit is of the policy credit, and of band.
type Credit struct {
	Period time.Duration `yaml:"period" placeholder:"TIME" def:"30ms" live:"" min:"1ms" max:"1s" help:"Credit and band: how often credit is given."`
}

// Band is of the policy band.
type Band struct {
	Window time.Duration `yaml:"window" placeholder:"TIME" def:"1s" live:"" min:"10ms" max:"1m" help:"Band: over which time use is measured."`
	Grace  time.Duration `yaml:"grace" placeholder:"TIME" def:"500us" live:"" min:"0s" max:"10ms" help:"Band: how long the card waits for the guest that had the last turn and used less. 0s: it does not."`
}

// Timeslice is of the policy timeslice.
type Timeslice struct {
	Slice time.Duration `yaml:"slice" placeholder:"TIME" def:"16ms" live:"" min:"100us" max:"1s" help:"Timeslice: how long a slice is."`
}

// DFQ is of the policy dfq.
type DFQ struct {
	Slice   time.Duration `yaml:"slice" placeholder:"TIME" def:"5ms" live:"" min:"100us" max:"1s" help:"DFQ: how long each process has the card to itself while it is measured."`
	Factor  int           `yaml:"factor" placeholder:"N" def:"5" live:"" min:"1" max:"1000" help:"DFQ: how long all processes run freely, in times of all the slices before."`
	FreeRun time.Duration `yaml:"free-run" name:"free-run" placeholder:"TIME" def:"0s" live:"" min:"0s" max:"10s" help:"DFQ: how long all processes run freely. 0s: by the factor."`
	Model   bool          `yaml:"model" def:"false" live:"" negatable:"" help:"DFQ: charge what the slices foretell instead of what was used, as published. A guest can cheat it."`
}

// Watchdog is about requests that do not end, beside limits.request.
type Watchdog struct {
	Grace    time.Duration `yaml:"grace" placeholder:"TIME" def:"1s" live:"" min:"1us" max:"10m" help:"How long a request over its limit keeps the engine before its channel is ended, and how long ending it may take."`
	Offences int           `yaml:"offences" placeholder:"N" def:"3" live:"" min:"0" max:"1048576" help:"A guest with so many requests over the limit within a minute is quarantined. 0: never."`
}

// QueueLimits bound what one guest can have the scheduler do.
type QueueLimits struct {
	Request   time.Duration `yaml:"request" placeholder:"TIME" def:"60s" live:"" min:"0s" max:"1h" help:"With a scheduler: how long one request of a guest may run before its channel ends with a fault. 0s: no limit."`
	Queued    int           `yaml:"queued" placeholder:"N" def:"1048576" live:"" min:"1" max:"1073741824" help:"With a scheduler: how many ring entries of a guest it accepts; more wait in the guest's rings."`
	Creations int           `yaml:"creations" placeholder:"N" def:"10000" live:"" min:"1" max:"1073741824" help:"With a scheduler: how many channels and processes of a guest may begin in a second. More are refused."`
}

// SchedulerOff is the policy of a card without a scheduler; SchedulerAuto is one that
// depends on what there is to share (see Layer.settleScheduler).
const (
	SchedulerOff  = "off"
	SchedulerAuto = "auto"
)

// Schedule is everything that says how the card's time is shared, and that may be
// changed while it is. Its keys are those of the file without "scheduler.":
// credit.period, limits.request.
type Schedule struct {
	Scheduler
	Limits QueueLimits `yaml:"limits"`
}

// Schedule is what the configuration says of it.
func (c *Config) Schedule() Schedule { return Schedule{c.Scheduler, c.Limits.QueueLimits} }

// Config is what package sched calls it, nil if work is given to the card as it comes.
func (s *Schedule) Config() (*sched.Config, error) {
	if s.Policy == SchedulerOff {
		return nil, nil
	}
	out := sched.Default()
	if err := out.Policy.UnmarshalText([]byte(s.Policy)); err != nil {
		return nil, err
	}
	out.Depth = s.Depth
	out.Credit = sched.CreditConfig{Period: s.Credit.Period}
	out.Band = sched.BandConfig(s.Band)
	out.Timeslice = sched.TimesliceConfig(s.Timeslice)
	out.DFQ = sched.DFQConfig(s.DFQ)
	out.Watchdog = sched.WatchdogConfig{Limit: s.Limits.Request, Grace: s.Watchdog.Grace, Offences: s.Watchdog.Offences}
	out.Limits.Queued, out.Limits.Creations = s.Limits.Queued, s.Limits.Creations
	return &out, out.Check()
}

// ScheduleOf is the reverse of Config.
func ScheduleOf(c *sched.Config) Schedule {
	return Schedule{
		Scheduler: Scheduler{
			Policy: c.Policy.String(), Depth: c.Depth,
			Credit: Credit(c.Credit), Band: Band(c.Band), Timeslice: Timeslice(c.Timeslice), DFQ: DFQ(c.DFQ),
			Watchdog: Watchdog{Grace: c.Watchdog.Grace, Offences: c.Watchdog.Offences},
		},
		Limits: QueueLimits{Request: c.Watchdog.Limit, Queued: c.Limits.Queued, Creations: c.Limits.Creations},
	}
}

// Values lists its options by key.
func (s *Schedule) Values() map[string]any { return values(s) }

// Keys lists its options in the order in which they are written.
func (s *Schedule) Keys() (out []string) {
	for _, o := range options(s) {
		out = append(out, o.path)
	}
	return out
}

// Put changes one option, or says what is wrong with it as an [Error].
func (s *Schedule) Put(key, value string) error {
	for _, o := range options(s) {
		if o.path != key {
			continue
		}
		if value == "" {
			return &Error{Where: key, Reason: "has no value; give one or leave it out"}
		}
		if value, err := o.take(value); err != nil {
			return &Error{Where: key, Value: value, Reason: err.Error()}
		}
		return nil
	}
	return &Error{Where: key, Reason: s.unknown(key)}
}

// unknown says why there is no such key here.
func (s *Schedule) unknown(key string) string {
	known := slices.Sorted(slices.Values(s.Keys()))
	for _, o := range options(new(Config)) {
		if o.path == key {
			return "is for the start, no option of the scheduler's; these can be changed: " + strings.Join(known, ", ")
		}
	}
	for _, o := range options(new(GPU)) {
		if o.path == key {
			return "is a GPU's; umbra gpu set changes it for one. The scheduler's are " + strings.Join(known, ", ")
		}
	}
	for _, k := range known {
		if strings.HasSuffix(k, "."+key) && !slices.ContainsFunc(known, func(o string) bool { return o != k && strings.HasSuffix(o, "."+key) }) {
			return fmt.Sprintf("unknown key; did you mean %q? There are %s", k, strings.Join(known, ", "))
		}
	}
	return "unknown key; " + Known(key, known)
}

// schedulerKeys begin the keys of its options in the file; [Schedule] knows them without.
const schedulerKeys = "scheduler."

// source is what changes of a schedule are called in errors.
const source = "scheduler"

// pairs reads what is to be changed; keys may be written as in the file, too.
func (s *Schedule) pairs(text string) (order []string, values map[string]string, err error) {
	return pairs(source, text, "credit.period=10ms", func(key string) string { return strings.TrimPrefix(key, schedulerKeys) })
}

// Change returns a schedule with options changed as keys and values say:
// policy=band,band.grace=1ms. All of them or, with an error, none.
func (s Schedule) Change(text string) (Schedule, error) {
	order, given, err := s.pairs(text)
	if err != nil {
		return s, err
	}
	changed := s
	if policy, ok := given["policy"]; ok && policy != SchedulerAuto && policy != SchedulerOff && !slices.Contains(sched.Policies(), policy) {
		return s, &Error{Where: source + ": policy", Value: policy, Reason: Known(policy, sched.Policies())}
	}
	for _, key := range order {
		if err := changed.Put(key, given[key]); err != nil {
			wrong := new(Error)
			if errors.As(err, &wrong) {
				wrong.Where = source + ": " + wrong.Where
			}
			return s, err
		}
	}
	if changed.Policy == SchedulerAuto {
		return s, &Error{Where: source + ": policy", Value: SchedulerAuto, Reason: "is for the start; name a policy: " + strings.Join(sched.Policies(), ", ")}
	}
	if changed.Policy == SchedulerOff {
		return s, &Error{Where: source + ": policy", Value: SchedulerOff, Reason: "cannot be turned off while the server runs; none gives work to the card as it comes and keeps the accounts"}
	}
	return changed, nil
}

// settleScheduler says what auto is: several GPUs, or a control socket by which there may
// come to be several, make it credit. Whether there is a scheduler is decided once, and
// one that has a single guest costs it nothing (docs/scheduling.md). Without a control
// socket a single GPU stays alone, and there is nothing to share.
func (l *Layer) settleScheduler() {
	c := &l.Config
	if c.Scheduler.Policy != SchedulerAuto {
		return
	}
	c.Scheduler.Policy = SchedulerOff
	if c.Socket == "" && (len(c.GPUs) > 1 || c.Control != "") {
		c.Scheduler.Policy = sched.Credit.String()
	}
}

// checkScheduler refuses what is possible alone but not together.
func (l *Layer) checkScheduler() error {
	s := l.Config.Schedule()
	if _, err := s.Config(); err != nil {
		return &Error{Where: l.Where("scheduler.policy"), Reason: err.Error()}
	}
	return nil
}
