// Package channels is the channels of one guest and the channels of the card that execute them. It
// knows no chip: a [Face] describes a channel, and says with one bit whether it may run.
//
// # Locks and goroutines
//
// The package has no goroutines. The guest's lock guards [Channels] and the fields of its channels;
// the caller holds it, except for methods that belong to the worker. Those wait for the card or
// copy memory, so the worker calls them without the lock, on channels that no trap can reach.
// Channels.mu guards the list of the card's channels and is a leaf. The lock of past comes before it, and
// before the card's.
package channels

import (
	"slices"
	"sync"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is the guest whose channels these are. Its methods are called without its lock.
type Guest interface {
	gate.Guest
	Quarantined() bool
	// Completed reports a non-stall event of engines.
	Completed(card.EngineSet)
	// Failed reports an error at which the card stopped a channel.
	Failed(*Channel, card.Fault)
	// MemoryBarrier makes the card find what the guest wrote to mapped windows.
	MemoryBarrier()
	// Abort ends a channel whose request does not end on an engine.
	Abort(ch *Channel, engine card.Engine)
	// Plant stops a channel with a fault that was planned. It may be called with the guest's lock.
	Plant(ch *Channel)
}

// Config is what the channels use.
type Config struct {
	Lock     sync.Locker      // the guest's
	Format   *shadowpt.Format // of the guest's tables
	Channels int              // that the guest may have on the card at a time
	GPU      card.GPU
	Share    card.Share
	Gate     *gate.Gate
	Mem      *memory.Memory
	Shadows  *shadow.Shadows
	Face     Face
}

// Channels are the channels of one guest.
type Channels struct {
	cfg   Config
	guest Guest
	stats *Stats

	State
	channels [Max]*Channel // the card's channels that execute the guest's
	exits    exits

	mu   sync.Mutex
	live map[*Channel]bool // that have a channel of the card
	past past
}

// State is what is known of a guest's channels. Only methods of Channels change it.
type State struct {
	Bound     Set  // the guest asked for them
	May       Set  // they may run
	Rebinding Set  // binds and unbinds that are not complete
	Behind    bool // the card does not follow May yet
	Planned   Planned
	Saved     [Max]SavedState // the worker writes it, and Forget under the guest's lock
}

// Pending is which requests of a guest have not taken effect.
type Pending struct {
	Bind       bool // or the end of one
	Asked      bool // what the face asked for
	Preempt    bool
	Invalidate bool
}

// SavedState names the state that the card keeps of an unbound channel. A driver that binds the
// same structures again continues with that state, also after a reset: QEMU resets the GPU when
// a guest wakes up.
type SavedState struct {
	Number uint32 // the card's channel, which is to be the same
	Token  uint64
}

// New returns the channels of a guest that has none yet.
func New(cfg Config, guest Guest, stats *Stats) *Channels {
	return &Channels{cfg: cfg, guest: guest, stats: stats, live: make(map[*Channel]bool)}
}

// Ready returns the channel of the card that executes the guest's channel id, nil if there is
// none or a bind of it is not complete.
func (c *Channels) Ready(id uint32) *Channel {
	if c.Rebinding.Has(id) {
		return nil
	}
	return c.channels[id]
}

// Channel returns the channel of the card behind the guest's channel id, nil if there is none.
func (c *Channels) Channel(id uint32) *Channel { return c.channels[id] }

// Is reports whether ch still executes the guest's channel.
func (c *Channels) Is(ch *Channel) bool { return c.channels[ch.ID] == ch }

// WillRebind notes that the worker has to bind or unbind a channel. Nothing goes to the card's
// channel until EndRebind.
func (c *Channels) WillRebind(id uint32) { c.Rebinding.Add(id) }

// BeginRebind takes the card's channel out of the table, to be closed. It returns whether the guest
// wants another.
func (c *Channels) BeginRebind(id uint32) (old *Channel, want bool) {
	old, c.channels[id] = c.channels[id], nil
	return old, c.Bound.Has(id)
}

// EndRebind puts the card's new channel, or nil, into the table. With again the guest asked for
// another bind meanwhile.
func (c *Channels) EndRebind(id uint32, ch *Channel, again bool) {
	c.channels[id] = ch
	if !again {
		c.Rebinding.Remove(id)
	}
}

// SetBound notes that the guest bound or unbound a channel. It reports whether that changes
// anything: then the worker has to follow.
func (c *Channels) SetBound(id uint32, on bool) bool {
	if !c.Bound.Has(id) && !on {
		return false
	}
	c.Bound.Put(id, on)
	if ch := c.Ready(id); ch != nil {
		ch.Disable()
		ch.Show() // from now on the guest may reuse the memory
	}
	return true
}

// Run lets a channel run if nothing stops it. If the method at which it was held is refused
// again, that error is returned.
func (c *Channels) Run(ch *Channel) (again card.Fault, refused bool) {
	switch {
	case ch.state.Stopped || !c.May.Has(ch.ID):
	case ch.state.Retry:
		c.stats.count(ch.state.Failed.Kind)
		return ch.state.Failed, true
	default:
		ch.state.Saved = false
		c.cfg.Gate.Enable(ch) // at its turn
	}
	return again, false
}

// Allow notes whether a channel may run, and ForbidAll that none may. AllowSoon notes which may: the card is
// behind until Follow.
func (c *Channels) Allow(id uint32, on bool) { c.May.Put(id, on) }
func (c *Channels) AllowSoon(may Set)        { c.May, c.Behind = may, true }
func (c *Channels) ForbidAll()               { c.May = Set{} }

// SetMay says which channels may run. It disables those that may not any more, and those of off, and
// returns those that may run now.
func (c *Channels) SetMay(now, off Set) (joined []*Channel) {
	was := c.May
	c.May = now
	for _, ch := range c.channels {
		switch {
		case ch == nil:
		case off.Has(ch.ID), was.Has(ch.ID) && !now.Has(ch.ID):
			ch.Disable()
		case now.Has(ch.ID) && !was.Has(ch.ID) && c.Ready(ch.ID) != nil:
			joined = append(joined, ch)
		}
	}
	return joined
}

// Follow returns the channels that may run, and disables the others.
func (c *Channels) Follow() (may []*Channel) {
	c.Behind = false
	for id := range uint32(Max) {
		switch ch := c.Ready(id); {
		case ch == nil:
		case c.May.Has(id):
			may = append(may, ch)
		default:
			ch.Disable()
		}
	}
	return may
}

// Serving returns the guest's channel that an engine works for, nil if that is another guest's.
func (c *Channels) Serving(engine card.Engine) *Channel {
	if ch, ok := c.cfg.GPU.Serving(engine).(*Channel); ok && ch.of == c {
		return ch
	}
	return nil
}

// Of returns the channels of the card that execute the guest's channels in ids.
func (c *Channels) Of(ids Set) (list []*Channel) {
	ids.Each(func(id uint32) {
		if ch := c.channels[id]; ch != nil {
			list = append(list, ch)
		}
	})
	return list
}

// Quiet reports whether no channel of the spaces that v names has anything left to do, and which of
// the spaces channels use.
func (c *Channels) Quiet(v shadow.Dirs) (used []shadow.Key, ok bool) {
	for _, ch := range c.channels {
		if ch == nil || !v.Has(ch.Key()) {
			continue
		}
		if c.cfg.Gate.Waiting(ch) || !ch.card.Quiet() {
			return nil, false
		}
		used = append(used, ch.Key())
	}
	return used, true
}

// TakeAll empties the table.
func (c *Channels) TakeAll() (left []*Channel) {
	for id := range c.channels {
		if ch := c.channels[id]; ch != nil {
			left = append(left, ch)
		}
		c.channels[id] = nil
	}
	c.Bound, c.May = Set{}, Set{}
	return left
}

// Forget forgets what the card saved of channels. No bind or unbind may be under way.
func (c *Channels) Forget() { c.Saved = [Max]SavedState{} }

// CardChannels lists the card's channels that execute the guest's, and those that the card has
// not given back. A channel that is opened while pages move waits for them before it may run, see
// [Channels.Open]. No lock is needed.
func (c *Channels) CardChannels() (list []card.Channel) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch := range c.live {
		list = append(list, ch.card)
	}
	return list
}

// ByNumber returns the card's channel id, nil if it is none of the guest's. No lock is needed.
func (c *Channels) ByNumber(id uint32) card.Channel {
	list := c.CardChannels()
	i := slices.IndexFunc(list, func(ch card.Channel) bool { return ch.ID() == id })
	if i < 0 {
		return nil
	}
	return list[i]
}

// setLive records a channel from its creation on the card until its memory is freed.
func (c *Channels) setLive(ch *Channel, on bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if on {
		c.live[ch] = true
	} else {
		delete(c.live, ch)
	}
}

func (c *Channels) withinQuota() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.live) < c.cfg.Channels
}
