package gate

import (
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// ShareState is a guest in the scheduler's tree.
type ShareState struct {
	Node   sched.ID
	By     Grouping
	Groups []GroupState
	Kernel GroupKey // of the channel that was bound first since there was none
	First  bool     // there was one
}

// group returns the group with a key, nil if there is none.
func (sh *ShareState) group(key GroupKey) *GroupState {
	if i := slices.IndexFunc(sh.Groups, func(gr GroupState) bool { return gr.Key == key }); i >= 0 {
		return &sh.Groups[i]
	}
	return nil
}

// GroupState is one process of a guest, as Grouping defines processes.
type GroupState struct {
	Key   GroupKey
	Node  sched.ID
	Chans int
}

// GroupKey names a group of a guest.
type GroupKey struct {
	Dir     uint64
	Target  shadowpt.Target
	Channel uint32 // plus one
	All     bool
}

// ChannelState is what the gate knows of a channel.
type ChannelState struct {
	Node  sched.ID
	Group GroupKey

	Size     uint32 // entries of the ring
	LastPut  uint32 // GP_PUT as the guest wrote it last
	Accepted uint32 // the part that the scheduler has accepted
	Sent     uint32 // as the card has it

	Inflight int
	Lane     int // the engine that worked for it last
	Last     card.Use
	Stalled  bool // reported to the scheduler as waiting for a semaphore
	Over     bool // it has ended, or the card does not stop it
	Aborting bool // it is to leave the card
	Bad      bool // the card was given a GP_PUT that is not in the ring
	Enabled  bool // by its guest
	Paused   bool // by the scheduler, until its next turn
}
