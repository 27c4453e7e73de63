package model

import (
	"errors"
	"fmt"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/sched/throttle"
)

// Mix is the set of guests that use the card.
type Mix struct {
	Guests []Node `json:"guests" yaml:"guests"`
}

// Node is a guest, a group of processes, or with a load a process.
type Node struct {
	Name     string         `json:"name" yaml:"name"`
	Weight   int            `json:"weight,omitempty" yaml:"weight"`
	Cap      int            `json:"cap,omitempty" yaml:"cap"`
	Priority int            `json:"priority,omitempty" yaml:"priority"`
	Limit    time.Duration  `json:"limit,omitempty" yaml:"limit"`
	Queued   int            `json:"queued,omitempty" yaml:"queued"`
	Count    int            `json:"count,omitempty" yaml:"count"`   // so many alike
	Merged   bool           `json:"merged,omitempty" yaml:"merged"` // its processes are not separated: channels of one group
	Load     *throttle.Load `json:"load,omitempty" yaml:"load"`
	Nodes    []Node         `json:"nodes,omitempty" yaml:"processes"`
}

// maxClients bounds a mix.
const maxClients = 4096

// Check fills in omitted values and returns invalid ones as errors.
func (m *Mix) Check() error {
	if len(m.Guests) == 0 {
		return &sched.Error{Field: "guests", Value: "none", Reason: "name one or more"}
	}
	m.Guests = append([]Node(nil), m.Guests...) // the caller's stay as they are
	total := 0
	return checkNodes(m.Guests, "guests", 1, 1, &total)
}

func checkNodes(list []Node, at string, depth, times int, total *int) error {
	if depth > 8 {
		return &sched.Error{Field: at, Value: fmt.Sprint(depth), Reason: "deeper than 8 levels"}
	}
	names := make(map[string]bool)
	for i := range list {
		n := &list[i]
		where := fmt.Sprintf("%s[%d].", at, i)
		if n.Name == "" {
			n.Name = fmt.Sprintf("%s%d", map[bool]string{true: "guest", false: "process"}[depth == 1], i)
		}
		if names[n.Name] {
			return &sched.Error{Field: where + "name", Value: n.Name, Reason: "there twice; names are unique below one node"}
		}
		names[n.Name] = true
		if n.Count == 0 {
			n.Count = 1
		}
		if n.Count < 0 || n.Count > maxClients {
			return &sched.Error{Field: where + "count", Value: fmt.Sprint(n.Count), Reason: fmt.Sprintf("must be 1 to %d", maxClients)}
		}
		share := sched.NodeConfig{Weight: n.Weight, Cap: n.Cap, Priority: n.Priority, Limit: n.Limit, Queued: n.Queued}
		if err := share.Check(); err != nil {
			if e := new(sched.Error); errors.As(err, &e) {
				return &sched.Error{Field: where + e.Field, Value: e.Value, Reason: e.Reason}
			}
			return err
		}
		switch {
		case n.Load == nil && len(n.Nodes) == 0:
			return &sched.Error{Field: where + "load", Value: "none", Reason: "give a load, or processes with loads"}
		case n.Load != nil && len(n.Nodes) > 0:
			return &sched.Error{Field: where + "load", Value: n.Name, Reason: "a node has a load or processes, not both"}
		case n.Load != nil:
			if *total += times * n.Count; *total > maxClients {
				return &sched.Error{Field: where + "count", Value: fmt.Sprint(*total), Reason: fmt.Sprintf("at most %d processes in all", maxClients)}
			}
			l := *n.Load // the caller's may be shared
			n.Load = &l
			if err := l.Check(where + "load."); err != nil {
				return err
			}
			*n.Load = l
		default:
			n.Nodes = append([]Node(nil), n.Nodes...)
			if err := checkNodes(n.Nodes, where+"processes", depth+1, min(times*n.Count, maxClients), total); err != nil {
				return err
			}
		}
	}
	return nil
}
