package config

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/umbra-gpu/umbra/aggregator"
	"github.com/umbra-gpu/umbra/aggregator/sched"
)

// CardTime is what a virtual GPU gets of the card's time, if there is a scheduler.
type CardTime struct {
	Weight    int         `yaml:"weight" placeholder:"N" live:"" min:"1" max:"10000"`
	Cap       Percent     `yaml:"cap" placeholder:"PERCENT" live:"" min:"0" max:"100"`
	Priority  int         `yaml:"priority" placeholder:"N" live:"" min:"0" max:"7"`
	Limits    GuestLimits `yaml:"limits"`
	Processes Processes   `yaml:"processes"`
}

// GuestLimits are a virtual GPU's own.
type GuestLimits struct {
	Request RequestLimit `yaml:"request" placeholder:"TIME" live:""`
	Queued  int          `yaml:"queued" placeholder:"N" live:"" min:"0" max:"1073741824"` // 0: the server's
}

// Processes says which channels of a guest are a process for the scheduler.
type Processes struct {
	Group string `yaml:"group" placeholder:"HOW" oneof:"space,channel,guest"`
}

// complete fills in what is not said.
func (t *CardTime) complete() {
	if t.Weight == 0 {
		t.Weight = sched.BaseWeight
	}
	if t.Processes.Group == "" {
		t.Processes.Group = aggregator.BySpace.String()
	}
}

// perCent is what of a cap the scheduler calls one.
const perCent = sched.FullCap / 100

// Node returns the share as package sched has it.
func (t CardTime) Node() sched.NodeConfig {
	return sched.NodeConfig{Weight: t.Weight, Cap: int(t.Cap) * perCent, Priority: t.Priority, Limit: time.Duration(t.Limits.Request), Queued: t.Limits.Queued}
}

// Grouping returns which channels are a process.
func (t CardTime) Grouping() aggregator.Grouping {
	return aggregator.Grouping(slices.Index(aggregator.Groupings(), t.Processes.Group))
}

// CardTimeOf is the reverse of Node and Grouping.
func CardTimeOf(n sched.NodeConfig, by aggregator.Grouping) CardTime {
	return CardTime{
		Weight: n.Weight, Cap: Percent(n.Cap / perCent), Priority: n.Priority, Limits: GuestLimits{RequestLimit(n.Limit), n.Queued},
		Processes: Processes{Group: by.String()},
	}
}

// RequestLimit is how long one request of a virtual GPU's guest may run: the server's
// limit if it is zero, for ever if it is sched.Forever.
type RequestLimit time.Duration

// inherited is a limit that is the server's.
const inherited = "inherit"

// maxRequest is the longest limit.
const maxRequest = time.Hour

// String writes the limit.
func (r RequestLimit) String() string {
	switch time.Duration(r) {
	case 0:
		return inherited
	case sched.Forever:
		return "0s"
	}
	return time.Duration(r).String()
}

// MarshalText implements encoding.TextMarshaler.
func (r RequestLimit) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *RequestLimit) UnmarshalText(text []byte) error {
	if string(text) == inherited {
		*r = 0
		return nil
	}
	possible := func(d time.Duration) bool { return d >= 0 && d <= maxRequest }
	d, err := parseTime(string(text), possible)
	switch {
	case err != nil:
		return fmt.Errorf("%w; 0s is for ever, and inherit is what the server's limits.request says", err)
	case !possible(d):
		return fmt.Errorf("%s: must be 0s to 1h, or inherit", text)
	case d == 0:
		d = sched.Forever
	}
	*r = RequestLimit(d)
	return nil
}

// isCardTime tells whether a key of a GPU is one of CardTime's.
func isCardTime(key string) bool {
	return slices.ContainsFunc(options(new(CardTime)), func(o option) bool { return o.path == key })
}

// OmitCardTime takes its options from others by key, for GPUs that have no scheduler.
func OmitCardTime(options map[string]any) {
	maps.DeleteFunc(options, func(key string, _ any) bool { return isCardTime(key) })
}

// CheckScheduled refuses to change a share of the card's time where nobody keeps to one:
// without a scheduler nothing that is asked for could ever come of it.
func CheckScheduled(g *GPU, text string) error {
	order, values, err := pairs("", text, "", nil)
	if err != nil {
		return nil // which [Change] says
	}
	for _, key := range order {
		if isCardTime(key) {
			return &Error{Where: g.Where(key), Value: values[key], Reason: "has no effect without a scheduler; " + WithScheduler}
		}
	}
	return nil
}
