package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
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

// Processes is how a guest's processes share what it gets.
type Processes struct {
	Group   string  `yaml:"group" placeholder:"HOW" oneof:"space,channel,guest"`
	Policy  string  `yaml:"policy" placeholder:"NAME" live:"" oneof:"off,equal,weighted"`
	Weights Weights `yaml:"weights" placeholder:"NAME:N,..." live:""`
}

// The policies of a guest's processes.
const (
	processesOff      = "off"
	processesEqual    = "equal"
	processesWeighted = "weighted"
)

// weightsKey and policyKey are keys of Processes.
const (
	weightsKey = "processes.weights"
	policyKey  = "processes.policy"
)

// complete fills in what is not said.
func (t *CardTime) complete() {
	if t.Weight == 0 {
		t.Weight = sched.BaseWeight
	}
	if t.Processes.Group == "" {
		t.Processes.Group = aggregator.BySpace.String()
	}
	if t.Processes.Policy == "" {
		t.Processes.Policy = processesEqual
	}
}

// perCent is what of a cap the scheduler calls one.
const perCent = sched.FullCap / 100

// Node is what package sched calls it.
func (t CardTime) Node() sched.NodeConfig {
	n := sched.NodeConfig{Weight: t.Weight, Cap: int(t.Cap) * perCent, Priority: t.Priority, Limit: time.Duration(t.Limits.Request), Queued: t.Limits.Queued}
	if t.Processes.Policy == processesOff {
		n.Policy = sched.None
	}
	return n
}

// Shares is what of it package aggregator has to know.
func (t CardTime) Shares() aggregator.Processes {
	p := aggregator.Processes{Group: aggregator.Grouping(slices.Index(aggregator.Groupings(), t.Processes.Group))}
	if t.Processes.Policy == processesWeighted {
		p.Weights = make(map[string]int)
		maps.Copy(p.Weights, t.Processes.Weights)
	}
	return p
}

// Kept are weights of processes that the policy makes no use of: it may be changed.
func (t CardTime) Kept() map[string]int {
	if t.Processes.Policy == processesWeighted {
		return nil
	}
	return t.Processes.Weights
}

// CardTimeOf is the reverse of Node, Shares and Kept.
func CardTimeOf(n sched.NodeConfig, p aggregator.Processes, kept map[string]int) CardTime {
	t := CardTime{
		Weight: n.Weight, Cap: Percent(n.Cap / perCent), Priority: n.Priority, Limits: GuestLimits{RequestLimit(n.Limit), n.Queued},
		Processes: Processes{Group: p.Group.String(), Policy: processesEqual, Weights: p.Weights},
	}
	switch {
	case n.Policy == sched.None:
		t.Processes.Policy = processesOff
	case p.Weights != nil:
		t.Processes.Policy = processesWeighted
	}
	if t.Processes.Policy != processesWeighted {
		t.Processes.Weights = kept
	}
	return t
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

// Weights are those of processes by name, written kernel:200,space-0x1a000:50, or none.
type Weights map[string]int

// noWeights is an empty list.
const noWeights = "none"

// String writes the weights by name.
func (w Weights) String() string {
	if len(w) == 0 {
		return noWeights
	}
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(w)) {
		parts = append(parts, name+":"+strconv.Itoa(w[name]))
	}
	return strings.Join(parts, ",")
}

// MarshalText implements encoding.TextMarshaler.
func (w Weights) MarshalText() ([]byte, error) { return []byte(w.String()), nil }

// maxWeights bounds the list.
const maxWeights = 1024

// UnmarshalText implements encoding.TextUnmarshaler.
func (w *Weights) UnmarshalText(text []byte) error {
	if string(text) == noWeights {
		*w = nil
		return nil
	}
	out := make(Weights)
	for part := range strings.SplitSeq(string(text), ",") {
		name, value, ok := strings.Cut(part, ":")
		n, err := strconv.Atoi(value)
		_, twice := out[name]
		switch {
		case !ok || name == "" || err != nil:
			return fmt.Errorf("%q is not a process and its weight; write kernel:200,space-0x1a000:50, with names that umbra sched show has", part)
		case twice:
			return fmt.Errorf("%s is there twice", name)
		case n < 1 || n > sched.MaxWeight:
			return fmt.Errorf("%s: %d: must be 1 to %d", name, n, sched.MaxWeight)
		case len(out) >= maxWeights:
			return fmt.Errorf("more than %d processes", maxWeights)
		}
		out[name] = n
	}
	*w = out
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

// checkCardTime refuses what contradicts itself.
func (g *GPU) checkCardTime() error {
	if p := &g.Processes; len(p.Weights) > 0 && p.Policy != processesWeighted && g.has(policyKey) {
		return &Error{Where: g.Where(weightsKey), Value: p.Weights.String(), Reason: fmt.Sprintf("has no effect while processes.policy is %s; set it to %s", p.Policy, processesWeighted)}
	}
	return nil
}
