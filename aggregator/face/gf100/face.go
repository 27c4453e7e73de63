// Package gf100 shows a guest its share of a card as a GF100 has it: the table of channels and their
// instance blocks, runlists and USERD in the guest's memory, and the registers of windows. It is the
// card behind a virtual GPU of package devmodel, and tells it of events in the words of its registers.
//
// # Locks and goroutines
//
// The package has no goroutines. Face.mu guards a FaceState. It is taken after the virtual GPU's lock,
// by traps and by the guest's worker, and before the guest's. The virtual GPU's lock guards its Windows
// instead.
//
// # Differences from a card of one's own
//
// Class state that a driver writes through PGRAPH's method port (404488, 40448c) while it creates
// its first graphics context stays in the guest's own registers: the card has one such port, and
// its values would apply to everybody. A virtual GPU's channels start from the engine's state after
// power-on.
//
// NV_PFIFO_MMU_FAULT_TRIGGER ends the channel that NV_PFIFO_ENGINE_STATUS shows or showed last. A
// real card ends the engine's last channel even if nobody read that register.
package gf100

import (
	"fmt"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/driver/structs"
	"github.com/umbra-gpu/umbra/aggregator/face"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	device "github.com/umbra-gpu/umbra/devmodel/gf100"
	chip "github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is the share of the card that the face shows.
type Guest interface {
	face.Share
	Quarantine(reason string)
	PollArea(off, n uint64)

	AllowSoon(may channels.Set)
	AllowNow(may, off channels.Set)
	TakeOff(off channels.Set)
	Ask([2]uint32)
	Refresh(id uint32)
	Resume(id uint32, retry bool)
	Busy(id uint32) bool
	Serving(card.Engine) (id uint32, ready, serves bool)
	End(id uint32, e card.Engine)
}

// Face is a guest's GF100.
type Face struct {
	to    Receiver
	guest Guest

	mu    sync.Mutex
	state FaceState
}

// FaceStateVersion is the version of FaceState that this package writes and reads.
const FaceStateVersion = 1

// FaceState is what the guest's registers say about its channels and windows. It is all that a face
// knows.
type FaceState struct {
	Version int
	Inst    [chip.Channels]uint64 // of the instance block, in the guest's VRAM
	Enabled channels.Set
	Listed  channels.Set // the last runlist
	Blocked bool         // PFIFO lets no channel run
	// Served is by engine the number plus one of the channel that the guest saw on it last.
	Served  [card.MaxEngines]uint8
	Windows WindowsState
}

// may returns which channels may run.
func (s *FaceState) may() channels.Set {
	if s.Blocked {
		return channels.Set{}
	}
	return s.Enabled.And(s.Listed)
}

var _ device.Card = (*Face)(nil)

// New returns a face that tells to of events. Connect sets the guest before the first call of another
// method.
func New(to Receiver) *Face { return &Face{to: to} }

// Connect sets the guest.
func (f *Face) Connect(g Guest) { f.guest = g }

// Format and Class implement aggregator.Face.
func (f *Face) Format() *shadowpt.Format { return shadowpt.Fermi }
func (f *Face) Class() uint16            { return chip.ChannelClass }

// Time, Quarantine, MemoryBarrier, Access and Shown implement device.Card.
func (f *Face) Time() uint64             { return f.guest.Time() }
func (f *Face) Quarantine(reason string) { f.guest.Quarantine(reason) }
func (f *Face) MemoryBarrier()           { f.guest.MemoryBarrier() }
func (f *Face) Access()                  { f.guest.Access() }
func (f *Face) Shown() bool              { return f.guest.Shown() }

// Busy implements device.Card.
func (f *Face) Busy(id uint8) bool { return f.guest.Busy(uint32(id)) }

// Reset implements device.Card.
func (f *Face) Reset() error {
	err := f.guest.Reset(false)
	f.locked(func(s *FaceState) { s.Enabled, s.Listed = channels.Set{}, channels.Set{} })
	return err
}

// State returns what the guest's registers say. No trap is under way.
func (f *Face) State() (s FaceState) {
	f.locked(func(now *FaceState) { s = *now })
	s.Version = FaceStateVersion
	return s
}

// SetState takes over a state, which it does not trust. No trap is under way. The guest's rooms take over
// theirs: nothing here opens channels or shows windows.
func (f *Face) SetState(s FaceState) error {
	if s.Version != FaceStateVersion {
		return fmt.Errorf("gf100: face state has version %d; this program reads version %d", s.Version, FaceStateVersion)
	}
	for e, id := range s.Served {
		if id > chip.Channels {
			return fmt.Errorf("gf100: face state: engine %d served channel %d; must be below %d", e, id-1, chip.Channels)
		}
	}
	f.locked(func(now *FaceState) { *now = s })
	return nil
}

func (f *Face) locked(do func(*FaceState)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(&f.state)
}

// ops are the operations on a channel.
var ops = [device.Ops]func(f *Face, id, v uint32){
	device.Bind:     (*Face).bind,
	device.Enable:   (*Face).enable,
	device.Preempt:  func(f *Face, id, _ uint32) { f.guest.Preempt(id) },
	device.Doorbell: func(f *Face, id, _ uint32) { f.guest.Doorbell(id) },
	device.Refresh:  func(f *Face, id, _ uint32) { f.guest.Refresh(id) },
	device.Resume:   func(f *Face, id, _ uint32) { f.guest.Resume(id, false) },
	device.Retry:    func(f *Face, id, _ uint32) { f.guest.Resume(id, true) },
}

// Channel implements device.Card.
func (f *Face) Channel(id uint8, op device.Op, v uint32) { ops[op](f, uint32(id), v) }

// bind binds the channel to the instance block whose page number is in bits 27:0, or unbinds it.
func (f *Face) bind(id, v uint32) {
	f.locked(func(s *FaceState) {
		s.Inst[id] = uint64(v&chip.InstanceAddr) << 12
		for e := range s.Served {
			if s.Served[e] == uint8(id)+1 {
				s.Served[e] = 0
			}
		}
		f.guest.Bind(id, v&chip.InstanceBound != 0)
	})
}

func (f *Face) enable(id, v uint32) {
	f.locked(func(s *FaceState) {
		s.Enabled.Put(id, v&chip.ChannelEnabled != 0)
		may := s.may()
		f.guest.Allow(id, may.Has(id))
	})
}

func (f *Face) setMayRun(v uint32) {
	f.locked(func(s *FaceState) {
		if blocked := v == 0; s.Blocked != blocked {
			s.Blocked = blocked
			f.guest.AllowSoon(s.may())
		}
	})
}

// Runlist implements device.Card. base is NV_PFIFO_RUNLIST_BASE, count the number of entries.
func (f *Face) Runlist(base, count uint32) {
	f.guest.ChannelStats().Runlists.Add(1)
	f.guest.Ask([2]uint32{base, count})
}

// Pending implements device.Card.
func (f *Face) Pending() device.Pending {
	p := f.guest.Pending()
	return device.Pending{Invalidate: p.Invalidate || !f.guest.Shown(), Runlist: p.Asked, Preempt: p.Preempt}
}

// Invalidate implements device.Card: pdb names the directory.
func (f *Face) Invalidate(pdb, v uint32) {
	target, dir := chip.InvalidatedDirectory(pdb)
	f.guest.Invalidate(shadow.Key{Dir: dir, Target: shadowpt.Target(target)}, v&chip.InvalidateAllDirs != 0)
}

// EngineStatus implements device.Card: another guest's channel reads as idle.
func (f *Face) EngineStatus(engine int) uint32 {
	e, ok := structs.Engine(engine)
	if !ok {
		return 0
	}
	id, ready, serves := f.guest.Serving(e)
	if !serves {
		return 0
	}
	if ready {
		f.locked(func(s *FaceState) { s.Served[e] = uint8(id) + 1 })
	}
	return chip.EngineBusy | id
}

// EndEngine implements device.Card: the channel that EngineStatus shows, or showed last, gets a fault
// of that engine and is taken off the card. The card's own register would end the channel of any guest.
func (f *Face) EndEngine(engine int) {
	e, ok := structs.Engine(engine)
	if !ok {
		return
	}
	f.EngineStatus(engine)
	f.locked(func(s *FaceState) {
		if s.Served[e] != 0 {
			f.guest.End(uint32(s.Served[e]-1), e)
		}
	})
}
