package sched

import (
	"math"
	"time"
)

// never is a time that is never reached.
const never = time.Duration(math.MaxInt64)

// State is the whole state of a scheduler. Its parts refer to each other by index, and
// encoding/json writes all of it: a scheduler made from a copy decides as the original.
type State struct {
	Config   Config
	Now      time.Duration
	Period   int64         // of credit, that is now
	Turn     int64         // counts turns given and submissions, for order
	Passes   int64         // counts the times that Next had nothing more
	LastRest time.Duration // when the last node that has used up its cap may have turns again
	Released int32         // no channel before this one has Hold Released and waits for no semaphore
	Tree
	Engines []Engine
	Alerts  []Alert
	Counts  Counts
}

// Counts count unusual events.
type Counts struct {
	BadEvents uint64 `json:"bad_events" help:"Events of unknown channels or work; report a bug."`
	BadTimes  uint64 `json:"bad_times" help:"Times that go back or are longer than the work was on the card; report a bug."`
	Refused   uint64 `json:"refused" help:"Entries beyond limits.queued, which wait in the guest's rings; raise the limit if the order among them matters."`
	Storms    uint64 `json:"storms" help:"Channels and processes refused because of limits.creations; raise the limit if the guest needs so many."`
	Runaways  uint64 `json:"runaways" help:"Requests aborted because they ran longer than limits.request."`
	Stuck     uint64 `json:"stuck" help:"Aborts that the card did not execute in time; report a bug."`
	Spoilt    uint64 `json:"spoilt" help:"Samples of policy dfq that are useless because a channel waited for a semaphore."`
}

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
	Engine  uint8 // of the last entry; waiting entries are assumed to use it, too
	Stalled bool  // waits for a semaphore
	Hold    Hold
	Batches []Batch
	Made    time.Duration // when it was added
	Charged time.Duration // since then
	Metered time.Duration // when it was charged last
	Seq     int64         // of the batch of the first entry on the card
	Request
}

// Request is what a channel has on the card.
type Request struct {
	OnCard   int           // entries, of all engines
	Issued   time.Duration // when the first of them came there
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
	Work
	Share
	Rest
	Books
	Turn  int64 // its place in a round
	Held  bool  // the policy gives it no turns
	Band  BandState
	Slice SliceState
}

// Work is what a node and all below it want of an engine.
type Work struct {
	Waiting  int
	Inflight int
	Able     int           // channels with work that wait for no semaphore
	Mean     time.Duration // of a channel: length of its requests; of a group: in dfq's last sample
	Pending  time.Duration // expected for the requests on the card; included in the tag
}

// Share is what a node had of an engine beside its siblings, and its children beside each other.
type Share struct {
	Tag     int64         // time served over weight
	Overuse time.Duration // beyond its slices, not yet compensated
	Idle    int64         // period in which it ran out of work

	Level    int64 // tag of a child that has neither credit nor debt
	Period   int64
	Received time.Duration // in this period
	Live     int64         // weight of the children that are able
	Left     int64         // weight of those that ran out of work in this period
	Rivals   int           // children that are able
	Orphan   int64         // tag for the next child, with the debts of removed ones
	Overdue  time.Duration // Overuse of removed children
}

// Rest is the time that a node's cap leaves it.
type Rest struct {
	Tokens  time.Duration // at Filled
	Filled  time.Duration
	RestEnd time.Duration // until then its cap is used up
}

// Books are a node's accounts.
type Books struct {
	Account Account
	Past    Account       // of removed children
	Counted time.Duration // until when Account.Wait is
}

// Engine is a part of the card that works on one request at a time.
type Engine struct {
	Off      int           // entries on the card of channels that wait for a semaphore or a turn
	Longest  time.Duration // request
	Groups   int           // that are able
	Progress time.Duration // when it last completed something, or got something to do
	Running  ID            // channel, if the card reports it
	Last     ID            // guest that had the last turn
	Alone    ID            // group that the policy gives all turns; zero if none
	Wake     time.Duration // when the policy must be called again
	Watch    Watch
	Keep     KeepState
	DFQ      DFQState
}

// What policies keep is here, so that a policy's file can be deleted. Each clears its own when it is
// chosen.

// BandState is a node's under band.
type BandState struct {
	Used   time.Duration // in the window UsedIn
	UsedIn int64
}

// KeepState is how band keeps an engine for a guest.
type KeepState struct {
	Until, From time.Duration // zero if it does not
	Done        bool          // it has, for the decision at hand
	Budget      time.Duration // for which it may, at At
	At          time.Duration
}

// SliceState is a parent's under timeslice.
type SliceState struct {
	Holder   ID // of a slice
	End      time.Duration
	OverFrom time.Duration // until when the holder's overrun is counted
	IdleAt   time.Duration // since when the holder is idle, or never
	Round    int64         // a child whose Turn is not less has had one in this round
	Rivals   int           // children that were able when the round began
	Live     int64         // and their weight
}

// DFQState is where an engine is under dfq.
type DFQState struct {
	Phase  uint8
	Since  time.Duration // of the phase
	End    time.Duration // of the free run
	Order  []ID          // groups that are sampled
	At     int           // the one under way
	Wide   bool          // its whole guest may continue, because it waits for a semaphore
	Done   int           // its requests in this slice
	Busy   time.Duration
	IdleAt time.Duration // since when it has nothing, or the card in the free run
	From   time.Duration // when its slice began
	Season time.Duration // all slices so far
}
