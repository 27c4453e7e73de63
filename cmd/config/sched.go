package config

import (
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// Scheduler is how virtual GPUs take turns on the card.
type Scheduler struct {
	Policy    string        `yaml:"policy" placeholder:"NAME" def:"off" oneof:"off,none,fifo,credit,band,timeslice,dfq" help:"Whose turn it is on the card. Off: there is no scheduler, and work is given to the card as it comes. None: the same, with accounts."`
	Hierarchy string        `yaml:"hierarchy" placeholder:"NAME" def:"tree" oneof:"tree,flat-weights,flat" help:"Who competes with whom: GPUs with each other, or all processes of all guests."`
	Depth     int           `yaml:"depth" placeholder:"N" def:"1" min:"1" max:"64" help:"How many requests may be on an engine at once. With one, the scheduler alone decides; more hide the way to the card."`
	Period    time.Duration `yaml:"period" placeholder:"TIME" def:"30ms" min:"1ms" max:"1s" help:"Credit and band: how often credit is given."`
	Slice     time.Duration `yaml:"slice" placeholder:"TIME" def:"16ms" min:"100us" max:"1s" help:"Timeslice: how long a turn is."`
}

// SchedulerOff is the policy of a card without a scheduler.
const SchedulerOff = "off"

// CardTime is what a virtual GPU gets of the card's time, if there is a scheduler.
type CardTime struct {
	Weight   int `yaml:"weight" placeholder:"N" live:"" min:"1" max:"10000"`
	Cap      int `yaml:"cap" placeholder:"PERCENT" live:"" min:"0" max:"100"`
	Priority int `yaml:"priority" placeholder:"N" live:"" min:"0" max:"7"`
}

// cardTimeKeys are the keys of its options.
var cardTimeKeys = []string{"weight", "cap", "priority"}

// perCent is what of a cap the scheduler calls one.
const perCent = sched.FullCap / 100

// Node is what package sched calls it.
func (t CardTime) Node() sched.NodeConfig {
	return sched.NodeConfig{Weight: t.Weight, Cap: t.Cap * perCent, Priority: t.Priority}
}

// CardTimeOf is the reverse of Node.
func CardTimeOf(n sched.NodeConfig) CardTime {
	return CardTime{Weight: n.Weight, Cap: n.Cap / perCent, Priority: n.Priority}
}

// Schedule is how the card is shared, nil if work is given to it as it comes.
func (c *Config) Schedule() (*sched.Config, error) {
	if c.Scheduler.Policy == SchedulerOff {
		return nil, nil
	}
	out := sched.Default()
	if err := out.Policy.UnmarshalText([]byte(c.Scheduler.Policy)); err != nil {
		return nil, err
	}
	if err := out.Hierarchy.UnmarshalText([]byte(c.Scheduler.Hierarchy)); err != nil {
		return nil, err
	}
	out.Depth = c.Scheduler.Depth
	out.Credit.Period = c.Scheduler.Period
	out.Timeslice.Slice = c.Scheduler.Slice
	out.Watchdog.Limit = c.Limits.Request
	return &out, out.Check()
}

// OmitCardTime takes its options from others by key, for GPUs that have no scheduler.
func OmitCardTime(options map[string]any) {
	for _, key := range cardTimeKeys {
		delete(options, key)
	}
}

// CheckCardTime refuses a share of the card's time that nobody would keep to.
func (l *Layer) CheckCardTime(g *GPU) error {
	if l.Config.Scheduler.Policy != SchedulerOff {
		return nil
	}
	for _, o := range options(g) {
		for _, key := range cardTimeKeys {
			if o.path == key && g.has(key) {
				return &Error{Where: g.Where(key), Value: fmt.Sprint(o.value.Interface()), Reason: "has no effect without a scheduler; " + withScheduler}
			}
		}
	}
	return nil
}

const withScheduler = "start the server with scheduler.policy (--sched-policy), for example credit, or leave it out"

// checkScheduler refuses what is possible alone but not together.
func (l *Layer) checkScheduler() error {
	c := &l.Config
	if c.Scheduler.Policy == SchedulerOff && c.Limits.Request != 0 && !l.isDefault("limits.request") {
		return &Error{Where: l.Where("limits.request"), Value: c.Limits.Request.String(), Reason: "has no effect without a scheduler; " + withScheduler}
	}
	if _, err := c.Schedule(); err != nil {
		return &Error{Where: l.Where("scheduler.policy"), Reason: err.Error()}
	}
	return nil
}
