package sched

import (
	"math"
	"time"
)

// never is a time that is never reached.
const never = time.Duration(math.MaxInt64)

const (
	none = int32(-1) // no node
	root = int32(0)  // the card's node
)

// ID names a node for as long as the node exists. Zero names nothing.
type ID uint64

// Card is the node of the card.
const Card ID = 1 << 32

// State is the whole state of a scheduler. Its parts refer to each other by index, and
// encoding/json writes all of it: a scheduler made from a copy decides as the original.
type State struct {
	Config   Config
	Now      time.Duration
	Turn     int64         // counts turns given and submissions, for order
	Passes   int64         // counts the times that Next had nothing more
	LastRest time.Duration // when the last node that has used up its cap may have turns again
	Nodes    []Node
	Unused   []int32
	Engines  []Engine
	Alerts   []Alert
	Counts   Counts
}

// Counts count unusual events.
type Counts struct {
	BadEvents uint64 `json:"bad_events"` // Events of unknown channels or work; report a bug.
	BadTimes  uint64 `json:"bad_times"`  // Times that go back or are longer than the work was on the card; report a bug.
	Refused   uint64 `json:"refused"`    // Entries beyond limits.queued, which wait in the guest's rings; raise the limit if the order among them matters.
	Storms    uint64 `json:"storms"`     // Channels and processes refused because of limits.creations; raise the limit if the guest needs so many.
	Runaways  uint64 `json:"runaways"`   // Requests aborted because they ran longer than limits.request.
	Stuck     uint64 `json:"stuck"`      // Aborts that the card did not execute in time; report a bug.
	Spoilt    uint64 `json:"spoilt"`     // Samples of policy dfq that are useless because a channel waited for a semaphore.
}

// Kind is the kind of a node.
type Kind uint8

// The kinds.
const (
	Free    Kind = iota // its place is free
	Inner               // the card, a guest or a group
	Channel             // takes submissions
)

// Block is a set of reasons why a node gets no turn.
type Block uint8

// The reasons.
const (
	Stopped     Block = 1 << iota // by the watchdog, until its request has ended
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
	Block  Block
	Lanes  []Lane // by engine

	Chan  ChannelState // of a channel
	Guest GuestState   // of a child of the card
}

// ChannelState is of a channel.
type ChannelState struct {
	Engine   uint8 // of the last entry; waiting entries are assumed to use it, too
	Stalled  bool  // waits for a semaphore
	Hold     Hold
	Batches  []Batch
	Made     time.Duration // when it was added
	Charged  time.Duration // since then
	Metered  time.Duration // when it was charged last
	OnCard   int           // entries, of all engines
	Issued   time.Duration // when the first of them came there
	Seq      int64         // of its batch
	HeadFrom time.Duration // when the oldest got its turn
	Run      time.Duration // charged for it so far
}

// Batch is what one doorbell added.
type Batch struct {
	Seq  int64
	Pass int64 // State.Passes at that time
	N    int
}

// maxBatches is how many doorbells of a channel are recorded. Later ones count as part of
// the last.
const maxBatches = 32

// GuestState bounds a guest.
type GuestState struct {
	Groups   int
	Channels int
	Queued   int
	Made     int // nodes in the second that began at MadeAt
	MadeAt   time.Duration
	Offences int // since Since
	Since    time.Duration
}

// Lane is a node's state for one engine.
type Lane struct {
	// Work at or below the node.
	Waiting  int
	Inflight int
	Able     int // channels with work that wait for no semaphore

	// As one of its parent's children.
	Tag     int64         // time served over weight
	Turn    int64         // its place in a round
	Mean    time.Duration // of a channel: length of its requests; of a group: in dfq's last sample
	Pending time.Duration // expected for the requests on the card; included in the tag
	Idle    int64         // period in which it ran out of work
	Used    time.Duration // in band's window UsedIn
	UsedIn  int64
	Overuse time.Duration // beyond its slices, not yet compensated
	Held    bool          // by dfq
	Tokens  time.Duration // of its cap, at Filled
	Filled  time.Duration
	RestEnd time.Duration // until then its cap is used up

	// As a parent of children that take turns.
	Level    int64 // tag of a child that has neither credit nor debt
	Period   int64
	Received time.Duration // in this period
	Live     int64         // weight of the children that are able
	Left     int64         // weight of those that ran out of work in this period
	Rivals   int           // children that are able
	Orphan   int64         // tag for the next child, with the debts of removed ones
	Overdue  time.Duration // Overuse of removed children

	// Of the card and of nodes whose children take slices.
	Last     int32     // child that had the last turn
	Keep     KeepState // band
	Holder   int32     // of a slice
	SliceEnd time.Duration
	OverFrom time.Duration // until when the holder's overrun is counted
	IdleAt   time.Duration // since when the holder is idle, or never
	Round    int64         // a child whose Turn is not less has had one in this round
	RoundOf  int           // children that were able when the round began
	RoundAll int64         // and their weight

	Account Account
	Past    Account       // of removed children
	Counted time.Duration // until when Account.Wait is
}

// KeepState is how band keeps the card for a child.
type KeepState struct {
	Until, From time.Duration // zero if it does not
	Done        bool          // it has, for the decision at hand
	Budget      time.Duration // for which it may, at At
	At          time.Duration
}

// Engine is a part of the card that works on one request at a time.
type Engine struct {
	Off      int           // entries on the card of channels that wait for a semaphore or a turn
	Longest  time.Duration // request
	Groups   int           // that are able
	Progress time.Duration // when it last completed something, or got something to do
	Running  ID            // channel, if the card reports it
	Wake     time.Duration // when the policy must be called again
	Watch    Watch
	DFQ      DFQState
}

func (s *Scheduler) id(n int32) ID { return ID(s.Nodes[n].Gen)<<32 | ID(uint32(n)) }

// find returns the node of an id, none if it was removed.
func (s *Scheduler) find(id ID) int32 {
	n := uint32(id)
	if int64(n) >= int64(len(s.Nodes)) || s.Nodes[n].Kind == Free || s.Nodes[n].Gen != uint32(id>>32) {
		return none
	}
	return int32(n)
}

// channel returns the node of a channel, none if it is none. Others are counted.
func (s *Scheduler) channel(id ID) int32 {
	if n := s.find(id); n != none && s.Nodes[n].Kind == Channel {
		return n
	}
	s.Counts.BadEvents++
	return none
}
