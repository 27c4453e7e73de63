// Package gh100 shows a guest its share of a card as a GH100 has it: address spaces and channels that
// GSP describes, and windows whose tables lie in the reserved end of VRAM. It is the card behind a
// virtual GPU of package devmodel/gh100, and tells it of events in the words of its GSP.
//
// A guest has [gsp.Channels] ids for channels. The card's channels are fewer, so a [Slot] stands between
// them: the aggregator knows a channel by the number of its slot.
//
// # Locks and goroutines
//
// The package has no goroutines. Face.mu guards a FaceState. It is taken after the virtual GPU's lock,
// by traps, by the guest's worker and by what delivers its events, and before the guest's. It is not held
// while events are passed on. The virtual GPU's lock guards the windows.
package gh100

import (
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/face"
	"github.com/umbra-gpu/umbra/aggregator/report"
	device "github.com/umbra-gpu/umbra/devmodel/gh100"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	chip "github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is the share of the card that the face shows.
type Guest interface {
	face.Share
	MaxChannels() int
}

// Face is a guest's GH100.
type Face struct {
	to    device.Events
	guest Guest

	mu    sync.Mutex
	state FaceState
	slots [gsp.Channels]uint8 // by the guest's id the number of the slot plus one; as state says

	reporting bool // a failure is being reported
}

// FaceStateVersion is the version of FaceState that this package writes and reads.
const FaceStateVersion = 1

// FaceState is what GSP asked for. It is all that a face knows.
type FaceState struct {
	Version int
	Spaces  map[uint64]Directory // by id
	Slots   [channels.Max]Slot
	Last    uint32 // slot that was taken last
}

// Directory is the page directory of an address space. TargetNone is none.
type Directory struct {
	Root uint64
	In   gsp.Target
}

// Slot has the guest's channel that the aggregator knows by the slot's number. It is free unless the
// channel is Opened; then it has the one that was there last.
type Slot struct {
	gsp.Channel
	Token uint64 // names the state that the card keeps of it while the guest sleeps
}

var _ device.Card = (*Face)(nil)

// New returns a face that tells to of events. Connect sets the guest before the first call of another
// method.
func New(to device.Events) *Face {
	return &Face{to: to, state: FaceState{Spaces: map[uint64]Directory{}}}
}

// Connect sets the guest.
func (f *Face) Connect(g Guest) {
	f.guest = g
	f.showWindows()
}

// Format and Class implement aggregator.Face.
func (f *Face) Format() *shadowpt.Format { return shadowpt.Hopper }
func (f *Face) Class() uint16            { return chip.ChannelClass }

// Round implements aggregator.Face. Nothing is asked for.
func (f *Face) Round([2]uint32) report.Notes { return 0 }

// Time implements the interface of the virtual GPU.
func (f *Face) Time() uint64 { return f.guest.Time() }

// BrokeRule implements the interface of the virtual GPU.
func (f *Face) BrokeRule(r device.Rule) {
	s := f.guest.ChannelStats()
	[...]*atomic.Uint64{device.RuleBoot: &s.BadGSP, device.RuleQueues: &s.BadGSP, device.RuleDoorbell: &s.BadDoorbell}[r].Add(1)
}

// Reset implements the interface of the virtual GPU. What GSP asked for is forgotten, but for the channels
// that a sleeping guest had.
func (f *Face) Reset(keep bool) error {
	err := f.guest.Reset(keep)
	f.locked(func(s *FaceState) {
		s.Spaces = map[uint64]Directory{}
		for i := range s.Slots {
			if s.Slots[i].Opened = false; !keep {
				s.Slots[i] = Slot{}
			}
		}
		f.setState(*s)
	})
	f.showWindows()
	return err
}

// State returns what GSP asked for. No trap is under way.
func (f *Face) State() (s FaceState) {
	f.locked(func(now *FaceState) { s = *now })
	s.Version, s.Spaces = FaceStateVersion, maps.Clone(s.Spaces)
	return s
}

// SetState takes over a state, which it does not trust. No trap is under way. The guest's rooms take over
// theirs: nothing here opens channels or shows windows.
func (f *Face) SetState(s FaceState) error {
	if s.Version != FaceStateVersion {
		return fmt.Errorf("gh100: face state has version %d; this program reads version %d", s.Version, FaceStateVersion)
	}
	for id, d := range s.Spaces {
		if int(d.In) >= len(targets) {
			return fmt.Errorf("gh100: face state: space %d has its directory in memory %d; must be below %d", id, d.In, len(targets))
		}
	}
	seen := make(map[uint32]bool)
	for i := range s.Slots {
		c := &s.Slots[i].Channel
		err := check(c)
		if seen[c.ID] {
			err = fmt.Errorf("channel %d is there twice", c.ID)
		}
		if c.Opened && err != nil {
			return fmt.Errorf("gh100: face state: slot %d: %w", i, err)
		}
		seen[c.ID] = seen[c.ID] || c.Opened
	}
	s.Spaces, s.Last = maps.Clone(s.Spaces), s.Last%channels.Max
	f.locked(func(*FaceState) { f.setState(s) })
	return nil
}

// setState replaces the state. Face.mu is held.
func (f *Face) setState(s FaceState) {
	f.state, f.slots = s, [gsp.Channels]uint8{}
	for i := range s.Slots {
		if c := &s.Slots[i]; c.Opened {
			f.slots[c.ID] = uint8(i) + 1
		}
	}
}

func (f *Face) locked(do func(*FaceState)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(&f.state)
}
