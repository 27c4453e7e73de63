package driver

import (
	"fmt"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// describedShare is a share whose channels the card's registers do not reach.
type describedShare struct {
	*share
	card card.Describer
}

// described is a channel that the driver describes to the card. Its share page holds its USERD, of which
// all classes have the fields of a GF100 at the same offsets.
type described struct {
	bound
	open card.DescribedChannel

	committed, enabled bool // it runs with both; guarded by mu

	// What the card reported of it, for Driver.deliver; guarded by Driver.described.mu.
	engines card.EngineSet
	fault   *card.Fault
}

// pendingEvents are the channels with events of the card that were not delivered.
type pendingEvents struct {
	mu   sync.Mutex
	list []*described // each once
}

// NewChannel implements card.Share.
func (s describedShare) NewChannel(c card.ChannelConfig, ev card.ChannelEvents) (card.Channel, error) {
	d := s.driver
	ch := new(described)
	if err := d.enter(ch, s.share, c.Prefer, ev); err != nil {
		return nil, err
	}
	ch.userd = ch.page
	d.WriteVRAM(ch.userd, newUSERD(&c))
	var err error
	ch.open, err = s.card.OpenChannel(card.Description{
		Class: s.cfg.Class, Number: ch.id, Space: c.Space.(*space).bound(c.Limit), Ring: c.Ring, State: c.State, USERD: ch.userd, In: shadowpt.VRAM,
		Engine: c.Engine, Owner: uint8(s.cfg.Number), Keep: s.cfg.Channels, Privileged: c.Privileged, Events: ch,
	})
	if err != nil {
		ch.leave()
		return nil, fmt.Errorf("card: %w", err)
	}
	return ch, nil
}

// bound is the space up to its last address.
func (s *space) bound(limit uint64) shadowpt.Space {
	return shadowpt.Space{Dir: s.root.addr, Target: shadowpt.VRAM, Limit: limit}
}

// Commit implements card.Share.
func (s describedShare) Commit() bool {
	for _, m := range s.driver.members(s.share) {
		ch := m.(*described)
		ch.mu.Lock()
		ch.committed = true
		ch.apply()
		ch.mu.Unlock()
	}
	return true
}

// Invalidate implements card.Share. It waits for nobody else's work.
func (s describedShare) Invalidate(spaces ...card.Space) bool {
	dirs := make([]shadowpt.Space, len(spaces))
	for i, sp := range spaces {
		dirs[i] = sp.(*space).bound(0)
	}
	if !s.driver.until(s.card.InvalidateSpaces(uint8(s.cfg.Number), dirs...)) {
		return false
	}
	freeRetired(spaces)
	return true
}

// Enable implements card.Channel.
func (ch *described) Enable() { ch.set(true) }

// Disable implements card.Channel.
func (ch *described) Disable() { ch.set(false) }

func (ch *described) set(enabled bool) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.enabled = enabled
	ch.apply()
}

// apply lets the channel run, or stops it. ch.mu is held.
func (ch *described) apply() {
	on := ch.enabled && ch.committed
	ch.quiet = ch.quiet && !on
	ch.open.Enable(on)
}

// Doorbell implements card.Channel.
func (ch *described) Doorbell(put uint32) {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.quiet = false
	ch.open.Doorbell(put)
}

// Running implements card.Channel.
func (ch *described) Running() bool { return ch.open.Running() }

// Quiet implements card.Channel.
func (ch *described) Quiet() bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	ch.quiet = ch.quiet || ch.open.Quiet()
	return ch.quiet
}

// State implements card.Channel.
func (ch *described) State() card.State { return ch.open.State() }

// Stop implements card.Channel.
func (ch *described) Stop(wait bool) (left, inTime bool) {
	ch.mu.Lock()
	ch.committed = false
	ch.apply()
	ch.mu.Unlock()
	left = !ch.Running()
	if wait {
		left = left || ch.driver.until(func() bool { return !ch.Running() })
		inTime = left
	}
	return left, inTime
}

// Unbind implements card.Channel.
func (ch *described) Unbind() { ch.open.Close() }

// Free implements card.Channel.
func (ch *described) Free() { ch.leave() }

// Completed implements card.ChannelEvents, for the card.
func (ch *described) Completed(e card.EngineSet) { ch.noteEvent(func() { ch.engines |= e }) }

// Fault implements card.ChannelEvents, for the card.
func (ch *described) Fault(f card.Fault) { ch.noteEvent(func() { ch.fault = &f }) }

// noteEvent has Driver.deliver deliver what note enters: the card does not wait for the receiver.
func (ch *described) noteEvent(note func()) {
	s := &ch.driver.described
	s.mu.Lock()
	if ch.engines == 0 && ch.fault == nil {
		s.list = append(s.list, ch)
	}
	note()
	s.mu.Unlock()
	ch.driver.wake()
}

// deliver delivers the events that are there. Those that come meanwhile have woken the interrupt handler.
// Driver.events is held.
func (d *Driver) deliver() {
	for range d.described.count() {
		ch, engines, fault := d.described.next()
		if d.owner(ch.id) != member(ch) {
			continue // it was freed
		}
		if engines != 0 {
			ch.ev.Completed(engines)
		}
		if fault != nil {
			ch.ev.Fault(*fault)
		}
	}
}

func (s *pendingEvents) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.list)
}

// next takes the oldest of those that count counted.
func (s *pendingEvents) next() (ch *described, engines card.EngineSet, fault *card.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ch, s.list = s.list[0], s.list[1:]
	engines, fault, ch.engines, ch.fault = ch.engines, ch.fault, 0, nil
	return ch, engines, fault
}

// describer is what NewShare needs of the card for channels of a class. It is nil for those of the registers.
func (d *Driver) describer(class uint16) (card.Describer, *shadowpt.Format, error) {
	if class == 0 || class == gf100.ChannelClass {
		return nil, shadowpt.Fermi, nil
	}
	if c, ok := d.Registers.(card.Describer); ok {
		if f, ok := c.Format(class); ok {
			return c, f, nil
		}
	}
	return nil, nil, fmt.Errorf("channels of class %04x: the card has none", class)
}
