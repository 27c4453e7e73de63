package gh100

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"github.com/umbra-gpu/umbra/devmodel/gh100/gsp"
	chip "github.com/umbra-gpu/umbra/mmio/gh100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// targets are the memories of directories.
var targets = [...]shadowpt.Target{gsp.TargetNone: 0, gsp.TargetVRAM: shadowpt.VRAM, gsp.TargetRAM: shadowpt.SystemCoherent}

// engines are the card's, by the index in gsp.Engines.
var engines = [...]card.Engine{card.Graphics, card.Copy0, card.Copy0 + 1}

// runlistLead is the first engine of an engine's runlist: a channel works for it, and announces what is
// complete by its interrupt.
func runlistLead(engine int) int {
	return slices.IndexFunc(gsp.Engines, func(e gsp.Engine) bool { return e.Runlist == gsp.Engines[engine].Runlist })
}

// NewSpace implements gsp.Host.
func (f *Face) NewSpace(id uint64) { f.locked(func(s *FaceState) { s.Spaces[id] = Directory{} }) }

// DropSpace implements gsp.Host.
func (f *Face) DropSpace(id uint64) { f.locked(func(s *FaceState) { delete(s.Spaces, id) }) }

// SetDirectory implements gsp.Host. The channels of the space are opened anew.
func (f *Face) SetDirectory(id, root uint64, in gsp.Target) {
	f.locked(func(s *FaceState) {
		s.Spaces[id] = Directory{root, in}
		for i := range s.Slots {
			if c := &s.Slots[i]; c.Opened && c.Space == id {
				f.bind(uint32(i))
			}
		}
	})
}

// bind has the channel of a slot opened, or closed if it may not be. Face.mu is held.
func (f *Face) bind(slot uint32) {
	c := &f.state.Slots[slot]
	f.guest.Bind(slot, c.Opened && !c.Failed && f.state.Spaces[c.Space].In != gsp.TargetNone)
}

// check returns what is wrong with a channel.
func check(c *gsp.Channel) error {
	switch {
	case c.ID >= gsp.Channels:
		return fmt.Errorf("channel %d: must be below %d", c.ID, gsp.Channels)
	case c.Engine < 0 || c.Engine >= len(engines):
		return fmt.Errorf("channel %d: engine %d: must be below %d", c.ID, c.Engine, len(engines))
	case bits.OnesCount32(c.Entries) != 1:
		return fmt.Errorf("channel %d: a ring of %d entries: must be a power of two", c.ID, c.Entries)
	}
	return nil
}

var errNoSlot = errors.New("the guest has all the channels that it may have")

// OpenChannel implements gsp.Host. The card has the channel once its space has a directory.
func (f *Face) OpenChannel(c gsp.Channel) (err error) {
	if err := check(&c); err != nil {
		f.guest.ChannelStats().BadChannel.Add(1)
		return err
	}
	f.locked(func(s *FaceState) {
		slot, ok := s.freeSlot(f.guest.MaxChannels())
		token := uint64(0)
		if old := s.slotBeforeSleep(&c); ok && old >= 0 {
			slot, token = uint32(old), s.Slots[old].Token
		}
		switch {
		case f.slots[c.ID] != 0:
			err = fmt.Errorf("channel %d is open already", c.ID)
		case !ok:
			f.guest.ChannelStats().OverQuota.Add(1)
			err = errNoSlot
		default:
			if !c.Opened {
				s.forget(c.ID)
			}
			c.Opened, c.Scheduled, c.Failed = true, false, false
			s.Slots[slot], s.Last, f.slots[c.ID] = Slot{c, token}, slot, uint8(slot)+1
			f.bind(slot)
		}
	})
	return err
}

// freeSlot finds a slot if fewer than most are taken: the next after the last one, since a report of a channel
// that was just closed may be under way.
func (s *FaceState) freeSlot(most int) (slot uint32, ok bool) {
	for i := range uint32(channels.Max) {
		at := (s.Last + channels.Max - i) % channels.Max // down to the next one
		if s.Slots[at].Opened {
			most--
		} else {
			slot = at
		}
	}
	return slot, most > 0
}

// forget forgets earlier channels with the id of a new one: none of them comes back after a sleep.
func (s *FaceState) forget(id uint32) {
	for i := range s.Slots {
		if !s.Slots[i].Opened && s.Slots[i].ID == id {
			s.Slots[i] = Slot{}
		}
	}
}

// slotBeforeSleep returns the slot that a channel had before the guest fell asleep, -1 if there is none.
func (s *FaceState) slotBeforeSleep(c *gsp.Channel) int {
	if !c.Opened {
		return -1
	}
	return slices.IndexFunc(s.Slots[:], func(o Slot) bool { return !o.Opened && o.ID == c.ID && o.Instance == c.Instance })
}

// CloseChannel implements gsp.Host.
func (f *Face) CloseChannel(id uint32) {
	f.with(id, func(s *FaceState, slot uint32) {
		s.Slots[slot].Opened, f.slots[id] = false, 0
		f.bind(slot)
		f.guest.Allow(slot, false)
	})
}

// Schedule implements gsp.Host.
func (f *Face) Schedule(id uint32, on bool) {
	f.with(id, func(s *FaceState, slot uint32) {
		s.Slots[slot].Scheduled = on
		f.guest.Allow(slot, on)
		if !on {
			f.guest.Preempt(slot)
		}
	})
}

// with calls do for the slot of the guest's channel, if there is one.
func (f *Face) with(id uint32, do func(s *FaceState, slot uint32)) {
	f.locked(func(s *FaceState) {
		if id < gsp.Channels && f.slots[id] != 0 {
			do(s, uint32(f.slots[id])-1)
		}
	})
}

// Settled implements the interface of the virtual GPU. A failure is reported before the id of its channel
// can be another's.
func (f *Face) Settled() (settled bool) {
	p := f.guest.Pending()
	f.locked(func(*FaceState) { settled = !p.Bind && !p.Preempt && !f.reporting })
	return settled
}

// Doorbell implements the interface of the virtual GPU.
func (f *Face) Doorbell(id uint32) {
	slot := uint32(channels.Max)
	f.with(id, func(_ *FaceState, at uint32) { slot = at })
	if slot < channels.Max {
		f.guest.Doorbell(slot)
	}
}

// Describe implements channels.Face. The ring goes on at the GP_GET in USERD, which a driver clears for a
// new channel, and Show writes for one that is closed while the guest sleeps.
func (f *Face) Describe(slot uint32) (d channels.Description, ok bool) {
	var c Slot
	var dir Directory
	f.locked(func(s *FaceState) {
		c = s.Slots[slot]
		dir = s.Spaces[c.Space]
	})
	if !c.Opened || dir.In == gsp.TargetNone {
		return d, false // closed since the round began
	}
	p := &place{f, slot, f.guest.Memory(), c.USERD}
	var b [chip.USERDGPPut + 4 - chip.USERDGPGet]byte
	if _, whole := p.mem.Translate(shadowpt.VRAM, c.USERD, chip.USERDSize, true); !whole || !p.mem.Read(shadowpt.VRAM, c.USERD+chip.USERDGPGet, b[:]) {
		f.guest.ChannelStats().BadUSERD.Add(1)
		return d, false
	}
	get := binary.LittleEndian.Uint32(b[:])
	return channels.Description{
		Space:    shadowpt.Space{Dir: dir.Root, Target: targets[dir.In], Limit: lastAddress},
		Engine:   engines[runlistLead(c.Engine)],
		Ring:     card.Ring{Base: c.Ring, Log2: uint32(bits.TrailingZeros32(c.Entries))},
		State:    card.State{GPGet: get, Token: c.Token},
		Progress: card.Progress{GPGet: get},
		Put:      binary.LittleEndian.Uint32(b[chip.USERDGPPut-chip.USERDGPGet:]),

		Privileged: c.Admin, Place: c.Instance, Structures: p,
	}, true
}

// place is the slot of a channel, and where it has its USERD in the guest's VRAM.
type place struct {
	face  *Face
	slot  uint32
	mem   *memory.Memory
	userd uint64
}

// Put implements channels.Structures.
func (p *place) Put(settled bool) (put uint32, ok bool) {
	return p.mem.Word(p.userd+chip.USERDGPPut, settled)
}

// Show implements channels.Structures.
func (p *place) Show(now card.Progress) {
	p.mem.Update(p.userd, chip.USERDSize, []memory.Word{{Offset: chip.USERDGPGet, Value: now.GPGet}})
}

// Save implements channels.Structures. The driver has no more of a channel's state than Show writes; the
// rest is kept for a channel that comes back after a sleep.
func (p *place) Save(now card.State) {
	p.face.locked(func(s *FaceState) { s.Slots[p.slot].Token = now.Token })
}
