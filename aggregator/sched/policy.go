package sched

import (
	"cmp"
	"fmt"
	"math"
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

// policies is the only place that knows them all.
var policies = [...]struct {
	name string
	make func(plain) policy
	traits
}{
	None:      {"none", func(p plain) policy { return open{p} }, traits{}},
	FIFO:      {"fifo", func(p plain) policy { return fifo{p} }, traits{ahead: true}},
	Credit:    {"credit", func(p plain) policy { return credit{p} }, traits{ahead: true, byTag: true}},
	Band:      {"band", func(p plain) policy { return band{credit{p}} }, traits{ahead: true, byTag: true}},
	Timeslice: {"timeslice", func(p plain) policy { return timeslice{p} }, traits{}},
	DFQ:       {"dfq", func(p plain) policy { return dfq{p} }, traits{window: dfqWindow, ownLevel: true}},
}

// traits are what a policy does not decide case by case.
type traits struct {
	window   int  // requests of one channel that may be on the card, if not zero
	ahead    bool // a short request may follow another while that runs
	byTag    bool // siblings in debt go by their tags, and the level rises to the one that is served
	ownLevel bool // the policy sets the levels, not the credit periods
}

// policy is how the children of nodes take turns. The methods up to yields are asked of the
// parent's rules: channels of one group take turns of one request under every policy but dfq.
type policy interface {
	// rank is the position of a node with work among its siblings of the same priority.
	rank(n int32, e int) rank
	// next is the child of p that has the next turn, none if the engine waits.
	next(p int32, e int) int32
	// yields reports whether a child of p that is on the card has to yield to another that is ready.
	yields(m, p int32, e int) bool

	// start begins with the policy, on a card that another may have shared so far.
	start()
	// scope is the node below which a turn may be given now, or none. If open, Depth is no limit.
	scope(e int) (from int32, open bool)
	// slice is how long the requests of a channel have an engine before others may have it, zero
	// if for ever.
	slice(e int) time.Duration
	// arrive bounds the savings of a node that has work again.
	arrive(n int32, e int)
	// serve adds the time d to a node's tag. The engine worked for busy.
	serve(n int32, e int, busy, d time.Duration)
	// done takes note of entries of a channel that ended, zero if one continues. Busy is since the
	// last call, run is that of the request.
	done(c int32, e, entries int, busy, run time.Duration)
}

// plain has turns of one request, and what most policies have in common.
type plain struct{ *Scheduler }

func (s plain) rank(n int32, e int) rank  { return rank{key: s.Nodes[n].Lanes[e].Turn} }
func (s plain) next(p int32, e int) int32 { return s.first(p, e) }

func (s plain) yields(m, p int32, e int) bool {
	best := s.first(p, e)
	return best != none && best != m && s.Nodes[best].Config.Priority >= s.Nodes[m].Config.Priority
}

func (s plain) start()                                             {}
func (s plain) scope(int) (from int32, open bool)                  { return root, false }
func (s plain) slice(int) time.Duration                            { return s.Config.Slice }
func (s plain) done(int32, int, int, time.Duration, time.Duration) {}

func (s plain) arrive(n int32, e int) {
	p := s.Nodes[n].Parent
	tag := &s.Nodes[n].Lanes[e].Tag
	*tag = max(*tag, s.Nodes[p].Lanes[e].Level-s.savings(p, e, true))
}

// serve bounds credit, but not debt: time that is forgiven would be free.
func (s plain) serve(n int32, e int, _, d time.Duration) {
	p := s.Nodes[n].Parent
	tag := &s.Nodes[n].Lanes[e].Tag
	*tag = max(*tag, s.Nodes[p].Lanes[e].Level-s.savings(p, e, false)) + over(d, s.weight(n))
}

// open lets the card take its own turns.
type open struct{ plain }

func (s open) scope(int) (from int32, open bool) { return root, true }
func (s open) slice(int) time.Duration           { return 0 }

// usePolicy follows the configuration.
func (s *Scheduler) usePolicy() {
	row := &policies[s.Config.Policy]
	s.traits, s.policy = row.traits, row.make(plain{s})
	s.window = cmp.Or(s.window, math.MaxInt)
}

// rules is how the children of a node take turns.
func (s *Scheduler) rules(p int32) policy {
	if s.isGroup(p) && !s.ownLevel {
		return plain{s}
	}
	return s.policy
}

// rank orders siblings of the same priority: the lowest class goes first, and in it the lowest key.
type rank struct {
	class int
	key   int64
}

// first is the ready child of p that is first by the rules of p, none if none is ready.
func (s *Scheduler) first(p int32, e int) int32 { return s.firstBut(none, p, e) }

// firstBut is first without one of the children.
func (s *Scheduler) firstBut(but, p int32, e int) int32 {
	rules, first, best := s.rules(p), none, rank{}
	for c := s.Nodes[p].First; c != none; c = s.Nodes[c].Next {
		if c == but || s.Nodes[c].Lanes[e].Able == 0 {
			continue
		}
		r := rules.rank(c, e)
		goes := first == none || cmp.Or(
			cmp.Compare(s.Nodes[first].Config.Priority, s.Nodes[c].Config.Priority),
			cmp.Compare(r.class, best.class), cmp.Compare(r.key, best.key), cmp.Compare(c, first)) < 0
		if goes && s.ready(c, e) { // last, because it looks below
			first, best = c, r
		}
	}
	return first
}

// ready reports whether a node could have a turn.
func (s *Scheduler) ready(n int32, e int) bool {
	node := &s.Nodes[n]
	l := &node.Lanes[e]
	switch {
	case l.Able == 0 || l.Held || node.Block != 0 || s.rests(n, e):
		return false
	case node.Kind == Channel && node.Chan.Hold != Granted:
		return node.Chan.Hold != Pausing && l.Inflight > 0
	case node.Kind == Channel:
		return l.Waiting > 0 && l.Inflight < s.window
	}
	for c := node.First; c != none; c = s.Nodes[c].Next {
		if s.ready(c, e) {
			return true
		}
	}
	return false
}

// Policies returns the names of the policies.
func Policies() (names []string) {
	for _, row := range policies {
		names = append(names, row.name)
	}
	return names
}

func (p Policy) String() string {
	if int(p) < len(policies) {
		return policies[p].name
	}
	return fmt.Sprint(uint8(p))
}

// MarshalText implements encoding.TextMarshaler.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Policy) UnmarshalText(text []byte) error {
	for i, row := range policies {
		if row.name == string(text) {
			*p = Policy(i)
			return nil
		}
	}
	return unknownPolicy(string(text))
}

func unknownPolicy(name string) error {
	return &Error{"policy", name, "must be one of " + strings.Join(Policies(), ", ")}
}
