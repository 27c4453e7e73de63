package sched

import (
	"fmt"
	"strings"
	"time"
)

// Policy is how siblings take turns.
type Policy uint8

// The policies.
const (
	None      Policy = iota // forward immediately; the card takes its own turns
	FIFO                    // in the order of submission
	Credit                  // in turn among those with credit, then the least debt
	Band                    // credit; those that recently used more than their share go last
	Timeslice               // one at a time for a slice
	DFQ                     // disengaged fair queueing
)

// policies is the only place that knows them all: whoever deletes a policy deletes its file and its row.
// A policy is made whenever the configuration changes, and finds in State where it was. If the old
// configuration had another, it starts anew.
var policies = [...]struct {
	name string
	make func(s *core, old *Config) policy
}{
	None:      {"none", newOpen},
	FIFO:      {"fifo", newFIFO},
	Credit:    {"credit", newCredit},
	Band:      {"band", newBand},
	Timeslice: {"timeslice", newTimeslice},
	DFQ:       {"dfq", newDFQ},
}

// policy decides who has an engine. It may set Engine.Wake, the time at which it has to be asked again.
type policy interface {
	// Arrive bounds the savings of a node that has work again.
	Arrive(n int32, e int)
	// Next returns the channel that has the next turn on an engine, and how many of its entries the
	// card gets: zero if it continues with those that it has. None if the engine waits.
	Next(e int) (c int32, entries int)
	// Charge adds what a channel used to its tag, and to those of all above it.
	Charge(c int32, e int, u Use)
	// Timer returns a channel whose time on an engine is over although its request has not ended, or
	// none.
	Timer(e int) (c int32)
}

// Use is what a channel used of an engine, or is expected to use.
type Use struct {
	Expected time.Duration // change of what is expected for its requests on the card
	Metered  bool          // the rest is what the card measured; else it is zero
	Busy     time.Duration // the engine worked for it
	Entries  int           // that ended
	Run      time.Duration // of the request that ended or continues
}

// plain has what most policies have in common.
type plain struct{ *core }

func (s plain) Arrive(n int32, e int) {
	p := s.Nodes[n].Parent
	tag := &s.Nodes[n].Lanes[e].Tag
	*tag = max(*tag, s.Nodes[p].Lanes[e].Level-s.savings(p, e, true))
}

// Charge bounds credit, but not debt: time that is forgiven would be free.
func (s plain) Charge(c int32, e int, u Use) {
	for n := c; n != root; n = s.Nodes[n].Parent {
		p := s.Nodes[n].Parent
		l := &s.Nodes[n].Lanes[e]
		l.Tag = max(l.Tag, s.Nodes[p].Lanes[e].Level-s.savings(p, e, false)) + over(u.Busy+u.Expected, s.weight(n))
		s.receive(p, e, u.Busy)
	}
}

// yields lets a channel of a group have turns like its siblings: one request, then the others.
func (s plain) yields(m, p int32, e int) bool {
	best := s.first(p, e, byTurn)
	return best != none && best != m && s.Nodes[best].Config.Priority >= s.Nodes[m].Config.Priority
}

// open lets the card take its own turns.
type open struct{ plain }

func newOpen(s *core, _ *Config) policy { return open{plain{s}} }

func (s open) Next(e int) (int32, int) {
	c := s.descend(root, e, byTurn)
	if c == none {
		return none, 0
	}
	l := &s.Nodes[c].Lanes[e]
	return s.give(c, root, e, min(l.Waiting, s.window-l.Inflight))
}

func (s open) Timer(int) int32 { return none }

// Policies returns the names of the policies.
func Policies() (names []string) {
	for _, row := range policies {
		if row.make != nil {
			names = append(names, row.name)
		}
	}
	return names
}

func (p Policy) known() bool { return int(p) < len(policies) && policies[p].make != nil }

func (p Policy) String() string {
	if p.known() {
		return policies[p].name
	}
	return fmt.Sprint(uint8(p))
}

// MarshalText implements encoding.TextMarshaler.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(text []byte) error {
	for i := range policies {
		if Policy(i).known() && policies[i].name == string(text) {
			*p = Policy(i)
			return nil
		}
	}
	return unknownPolicy(string(text))
}

func unknownPolicy(name string) error {
	return &Error{"policy", name, "must be one of " + strings.Join(Policies(), ", ")}
}
