package sched

import (
	"fmt"
	"math"
	"time"
)

// StateVersion is that of [State]. A state of another version is not taken up.
const StateVersion = 4

// never is a time that does not come.
const never = time.Duration(math.MaxInt64)

// none is no node.
const none = int32(-1)

// root is the card's node.
const root = int32(0)

// ID names a node for as long as it is there. Zero names nothing.
type ID uint64

// Card is the node of the card.
const Card ID = 1 << 32

// State is all that a scheduler knows. It is data: no pointers between its
// parts, and nothing that is not written down by encoding/json.
type State struct {
	Version int
	Config  Config
	Now     time.Duration
	Turn    int64 // counts turns given and submissions, for order
	Passes  int64 // counts times that all was forwarded that may be
	Nodes   []Node
	Unused  []int32
	Engines []Engine
	Alerts  []Alert
	Counts  Counts
}

// Counts are of what should not happen.
type Counts struct {
	Backwards      uint64 // times before one that was told already
	UnknownChannel uint64 // events of channels that are not there
	UnknownWork    uint64 // entries completed that were not on the card
	BadTime        uint64 // busy times that are negative or longer than the work was on the card
	Refused        uint64 // entries over their guest's limit
	Storms         uint64 // nodes refused because their guest makes too many
	Overflow       uint64 // groups that share their guest's last
	Runaways       uint64 // requests that were aborted
	Stuck          uint64 // aborts that the card did not carry out in time
	Invalid        uint64 // dfq: samples that a semaphore spoilt
}

// Kind is what a node is.
type Kind uint8

// The kinds.
const (
	Gone    Kind = iota // its place is free
	Inner               // the card, a guest or a group
	Channel             // takes submissions
)

// Block is why a node gets no turn.
type Block uint8

// The reasons.
const (
	Paused      Block = 1 << iota // by whoever runs the card
	Stopped                       // by the watchdog, until its request has ended
	Quarantined                   // by the watchdog, until it is released
	Dying                         // removed, with work on the card
)

// Node is the card, a guest, a group or a channel.
type Node struct {
	Gen    uint32
	Kind   Kind
	Config NodeConfig
	Parent int32
	First  int32 // child
	Next   int32 // sibling
	Prev   int32
	Block  Block
	Heir   ID     // of a group that is going: who takes over what it still uses
	Lanes  []Lane // by engine

	Chan  ChannelState // of a channel
	Guest GuestState   // of a child of the card
}

// ChannelState is of a channel.
type ChannelState struct {
	Engine   uint8 // where what waits is thought to run: where the last entry ran
	Stalled  bool  // waits for a semaphore
	Batches  []Batch
	OnCard   int           // entries, of all engines
	Issued   time.Duration // when the first of them came there
	Charged  time.Duration // for them so far
	HeadFrom time.Duration // when the one under way became the oldest
	Run      time.Duration // charged for it so far
}

// Batch is what one doorbell added.
type Batch struct {
	Seq int64
	// Pass is how often all that might be had been forwarded before.
	Pass int64
	N    int
}

// maxBatches is how many doorbells of a channel are remembered one by one.
// Later ones count as part of the last.
const maxBatches = 32

// GuestState bounds a guest.
type GuestState struct {
	Groups   int
	Channels int
	Queued   int
	Last     int32 // group made last, which further ones share
	Made     int   // nodes in the second that began at MadeAt
	MadeAt   time.Duration
	Offences int // since OffendedAt
	Since    time.Duration
}

// Lane is what a node has to do with one engine.
type Lane struct {
	// Work below the node.
	Waiting  int
	Inflight int
	Able     int // channels with work that wait for no semaphore

	// As one of its parent's children.
	Tag     int64         // time served over weight, see tagOf
	Stand   Stand         // if it is ready
	Turn    int64         // its place in a round
	Mean    time.Duration // of a channel: length of a request, of late; of a group: in dfq's last sample
	Pending time.Duration // foretold of the requests on the card, of all below: it is in the tag
	Idle    int64         // period in which it ran out of work
	Used    time.Duration // in its parent's window
	UsedIn  int64         // that window
	Overuse time.Duration // beyond its slices, not yet paid back
	Held    bool          // by dfq
	Tokens  time.Duration // of its cap
	Filled  time.Duration // when they were counted
	Rests   bool          // has none
	RestEnd time.Duration

	// As a parent of children that take turns.
	Level    int64 // tag of a child that has neither credit nor debt
	Period   int64
	Received time.Duration // in this period
	Live     int64         // weight of the children that are able
	Left     int64         // weight of those that ran out of work in this period
	Rivals   int           // children that are able
	Window   int64
	Holder   int32 // of a slice
	Begun    time.Duration
	Round    int64 // of slices: who had a turn before it has one in it
	RoundOf  int   // children that were able when it began
	RoundAll int64 // and their weight
	SliceEnd time.Duration
	OverFrom time.Duration
	IdleAt   time.Duration // since when the holder is, or never
	Last     int32         // child that had the last turn
	Grace    time.Duration // until when it is waited for
	KeptFrom time.Duration // since when
	Keep     time.Duration // for which it may be waited
	KeepAt   time.Duration // when that was counted
	Chances  int
	Orphans  [4]int64 // tags of removed children that were in debt
	// OrphanOveruse is the most that one of them had overstayed.
	OrphanOveruse time.Duration

	Account Account
	Past    Account       // of children that are gone
	Counted time.Duration // until when Account.Wait is
}

// Stand is where a node stands among its siblings: how it was ranked when it was last
// looked at. That follows from the rest of the state, but not from the rest of it as it
// is now: nobody looks at all siblings when what ranks them changes.
type Stand struct {
	Queue uint8
	Class uint8
	Key   int64
}

// Engine is a part of the card that works on one request at a time.
type Engine struct {
	Stalled  int           // entries on the card of channels that wait for a semaphore
	Longest  time.Duration // request
	Flat     int64         // weight of all groups that are able
	Rivals   int           // groups that are able
	Progress time.Duration // when it last completed something, or got something to do
	Running  ID            // channel, if the card tells
	Wake     time.Duration // when the policy wants to be asked again
	Watch    Watch
	DFQ      DFQState
}

func (s *Scheduler) id(n int32) ID { return ID(s.Nodes[n].Gen)<<32 | ID(uint32(n)) }

// find returns the node of an id, none if it is gone.
func (s *Scheduler) find(id ID) int32 {
	n := uint32(id)
	if int64(n) >= int64(len(s.Nodes)) || s.Nodes[n].Kind == Gone || s.Nodes[n].Gen != uint32(id>>32) {
		return none
	}
	return int32(n)
}

// Freeze copies the state. The scheduler goes on.
func (s *Scheduler) Freeze() *State {
	c := s.State
	c.Nodes = append([]Node(nil), s.Nodes...)
	for i := range c.Nodes {
		c.Nodes[i].Lanes = append([]Lane(nil), c.Nodes[i].Lanes...)
		c.Nodes[i].Chan.Batches = append([]Batch(nil), c.Nodes[i].Chan.Batches...)
	}
	c.Unused = append([]int32(nil), s.Unused...)
	c.Alerts = append([]Alert(nil), s.Alerts...)
	c.Engines = append([]Engine(nil), s.Engines...)
	for i := range c.Engines {
		c.Engines[i].DFQ.Order = append([]int32(nil), c.Engines[i].DFQ.Order...)
	}
	return &c
}

// Restore makes a scheduler that goes on where a frozen one was. It takes over
// the state.
func Restore(st *State) (*Scheduler, error) {
	if st.Version != StateVersion {
		return nil, &Error{"version", fmt.Sprint(st.Version), fmt.Sprintf("must be %d", StateVersion)}
	}
	if err := st.Config.Check(); err != nil {
		return nil, err
	}
	if err := st.checkLinks(); err != nil {
		return nil, err
	}
	s := &Scheduler{State: *st}
	s.resume()
	return s, nil
}

// checkLinks says whether the parts of a state fit together, as far as the
// scheduler's own safety depends on it.
func (st *State) checkLinks() error {
	bad := func(what string, v any) error {
		return &Error{what, fmt.Sprint(v), "does not fit the rest of the state"}
	}
	if len(st.Engines) < 1 || len(st.Engines) > MaxEngines {
		return bad("engines", len(st.Engines))
	}
	if len(st.Nodes) == 0 || st.Nodes[root].Kind != Inner || st.Nodes[root].Parent != none {
		return bad("nodes", len(st.Nodes))
	}
	link := func(n int32) bool { return n >= none && int(n) < len(st.Nodes) }
	for i := range st.Nodes {
		n := &st.Nodes[i]
		if n.Kind == Gone {
			continue
		}
		if len(n.Lanes) != len(st.Engines) || int(n.Chan.Engine) >= len(st.Engines) || n.Kind > Channel {
			return bad("node", i)
		}
		// A child is younger in no particular order, but it has a living parent.
		if i != int(root) && (n.Parent < 0 || int(n.Parent) >= len(st.Nodes) || st.Nodes[n.Parent].Kind != Inner) {
			return bad("parent", n.Parent)
		}
		if n.Config.Weight < 1 || n.Config.check() != nil {
			return bad("weight", n.Config.Weight)
		}
		batched, waiting := 0, 0
		for _, b := range n.Chan.Batches {
			if batched += b.N; b.N < 1 {
				return bad("batch", b.N)
			}
		}
		for e := range n.Lanes {
			if waiting += n.Lanes[e].Waiting; n.Lanes[e].Waiting < 0 || n.Lanes[e].Inflight < 0 {
				return bad("waiting", n.Lanes[e].Waiting)
			}
		}
		if n.Kind == Channel && batched != waiting || len(n.Chan.Batches) > maxBatches {
			return bad("batches", batched)
		}
		for _, l := range []int32{n.First, n.Next, n.Prev, n.Guest.Last} {
			if !link(l) {
				return bad("link", l)
			}
		}
		for e := range n.Lanes {
			if !link(n.Lanes[e].Holder) || !link(n.Lanes[e].Last) {
				return bad("link", i)
			}
			if q := n.Lanes[e].Stand.Queue; q > debts {
				return bad("queue", q)
			}
		}
		// Every way up ends at the card.
		steps := 0
		for m := int32(i); m != root; m = st.Nodes[m].Parent {
			if steps++; m < 0 || steps > len(st.Nodes) {
				return bad("parent", n.Parent)
			}
		}
	}
	if err := st.checkSiblings(bad); err != nil {
		return err
	}
	for _, n := range st.Unused {
		if !link(n) || n <= root || st.Nodes[n].Kind != Gone {
			return bad("unused", n)
		}
	}
	for e := range st.Engines {
		d := &st.Engines[e].DFQ
		if d.Phase >= phases || !link(d.Group) || d.At < 0 || d.At > len(d.Order) {
			return bad("dfq", e)
		}
		for _, n := range d.Order {
			if !link(n) {
				return bad("dfq.order", n)
			}
		}
	}
	return nil
}

// checkSiblings says whether every node is once in its parent's list.
func (st *State) checkSiblings(bad func(string, any) error) error {
	seen := 0
	for i := range st.Nodes {
		if st.Nodes[i].Kind == Gone {
			continue
		}
		last := none
		for c := st.Nodes[i].First; c != none; c = st.Nodes[c].Next {
			if seen++; seen > len(st.Nodes) || st.Nodes[c].Kind == Gone || st.Nodes[c].Parent != int32(i) || st.Nodes[c].Prev != last {
				return bad("sibling", c)
			}
			last = c
		}
	}
	for i := range st.Nodes {
		if st.Nodes[i].Kind == Gone {
			seen++
		}
	}
	if seen != len(st.Nodes)-1 { // the card is nobody's child
		return bad("nodes", seen)
	}
	return nil
}
