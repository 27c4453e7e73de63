package aggregator

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Aggregator shares a card.
type Aggregator struct {
	opts     Options
	ctl      control
	bus      bus
	gate     *gate  // nil without a scheduler
	pollArea uint64 // the card's USERD pages, in VRAM

	// The card's time at a moment of ours. Both count nanoseconds.
	cardEpoch uint64
	epoch     time.Time

	mu       sync.Mutex // see the package comment
	memory   partition
	guests   [MaxGuests]*Guest
	channels [gf100.Channels]*channel // by the card's channel number

	routeMu sync.Mutex // one look at the card's interrupts at a time
	routing sync.WaitGroup
	closing chan struct{} // closed by Close

}

// Options are an aggregator's limits, and how it shares. The zero value of each is
// its default.
type Options struct {
	// Guests is how many there may be at a time, 1 to 32; default 32. They share the
	// card's bus addresses: of each guest's memory the card reaches the first 1 TiB
	// divided by that number, taken up to a power of two.
	Guests int
	// CardTimeout bounds each wait for the card; default 500 ms. A wait takes some 20 ms
	// longer, in looks behind the bound: the process itself may have stood still. A guest
	// whose channels the card does not give back in that time is put into safe mode.
	CardTimeout time.Duration
	// UnmapTimeout bounds the whole wait for the card when memory is taken from a
	// guest, default 1.5 s, and some 40 ms longer, for the same reason: QEMU waits 5 s for
	// the answer. A guest for which it runs out loses all of its memory, and its channels.
	UnmapTimeout time.Duration
	// ErrorBurst and ErrorRate bound how often a guest may stop the card's
	// engines with faults and errors: so many at once, and so many a second for
	// ever. Defaults 4096 and 512. A guest beyond that is put into safe mode.
	ErrorBurst, ErrorRate float64
	// InterruptBurst is how often the card is asked what happened, at most, before
	// one that always has something to say is left alone for InterruptPause. Defaults
	// 64 and 1 ms.
	InterruptBurst int
	InterruptPause time.Duration
	// InvalidateDirs is how many page directories one invalidate of the card names,
	// default 32. One of more is of everybody's.
	InvalidateDirs int
	// TableRate bounds the work on page tables for one guest, in the long run, in bytes
	// a second of which each is about a nanosecond (see toll); default 512 MiB, half a
	// processor. A guest beyond that has its invalidates and submissions wait; memory
	// that goes does not.
	TableRate float64
	// Map bounds what a guest's mapped windows cost, if GuestConfig does not say so.
	Map homes.Limits
	// Scheduler says how the card's time is shared. Without it, work is given to
	// the card as it comes.
	Scheduler *sched.Config
	// Clock is the scheduler's time; nil is the machine's, from New on.
	Clock func() time.Duration

	alarm alarm // of the scheduler's clock; nil is the machine's
}

// New brings the card into service. The card must be fresh from a reset, and is
// the aggregator's alone until Close.
func New(c card.Card) (*Aggregator, error) { return NewWith(c, Options{}) }

// NewWith is New with limits.
func NewWith(c card.Card, o Options) (*Aggregator, error) {
	o.complete()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	a := &Aggregator{opts: o, memory: newPartition(c.VRAMSize())}
	a.ctl.init(c, o.CardTimeout, o.InvalidateDirs)
	a.bus.init(o.Guests)
	a.closing = make(chan struct{})
	var err error
	a.pollArea, err = a.ctl.bringUp(a.allocOwn)
	if err != nil {
		return nil, err
	}
	a.epoch = time.Now()
	a.cardEpoch = a.ctl.time()
	if o.Scheduler != nil {
		if o.Clock == nil {
			o.Clock = func() time.Duration { return time.Since(a.epoch) }
		}
		if o.alarm == nil {
			o.alarm = timer{time.NewTimer(time.Hour)}
		}
		if a.gate, err = newGate(a, *o.Scheduler, o.Clock, o.alarm); err != nil {
			return nil, err
		}
	}
	c.AttachHost(&a.bus)
	a.routing.Add(1)
	go a.route()
	return a, nil
}

func (a *Aggregator) time() uint64 { return a.cardEpoch + uint64(time.Since(a.epoch)) }

// Close takes the card out of service. All guests must have been removed.
func (a *Aggregator) Close() error {
	if g := a.everybody(); len(g) > 0 {
		return fmt.Errorf("aggregator: closed while guest %s is there", g[0].name)
	}
	a.ctl.card.DetachHost()
	close(a.closing)
	a.routing.Wait()
	if a.gate != nil {
		a.gate.close()
	}
	return nil
}

// allocOwn returns n bytes of card memory that no guest can reach, scrubbed.
func (a *Aggregator) allocOwn(n uint64) (uint64, error) {
	a.mu.Lock()
	r, ok := a.memory.take(wholePages(n), pageSize)
	a.mu.Unlock()
	if !ok {
		return 0, fmt.Errorf("aggregator: the card has no %d KiB in one piece left", n>>10)
	}
	return r.addr, a.ctl.card.ScrubVRAM(r.addr, r.size)
}

func wholePages(n uint64) uint64 { return (n + pageSize - 1) &^ (pageSize - 1) }

// Free returns how many bytes of the card's memory nobody has.
func (a *Aggregator) Free() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memory.left()
}

// GuestConfig says what a guest gets.
type GuestConfig struct {
	Name     string
	VRAM     uint64 // bytes, a multiple of 1 MiB
	Channels int    // how many it may have bound at a time; 0 = all
	// Guaranteed is how many of them it can count on, whatever the others have; 0 is
	// an even share among as many guests as there may be.
	Guaranteed int
	// Tables is the memory for its page-table shadows, in bytes: its own, taken
	// from the card when the guest is added. Channels beyond the guaranteed have their
	// instance blocks there, too. 0 is an eighth of VRAM, 8 MiB at least and 64 MiB at
	// most.
	Tables uint64
	// Shadow is how its page tables are shadowed.
	Shadow shadowpt.Policy
	// Map says which windows its clients may map, from the next client on.
	Map       homes.Map
	MapLimits homes.Limits // the zero value is Options.Map
	// Share is its part of the card's time, if that is shared.
	Share sched.NodeConfig
	// Group says which of its channels are one process for the scheduler.
	Group Grouping
}

// Own is what the aggregator takes of the card's memory for itself, at most, beside
// the tables of each guest: the instance blocks of channels that are guaranteed,
// runlists, USERD, and what lies fallow because guests begin at large pages.
const Own = 8 << 20

// DefaultTables is the memory for page tables of a guest that does not say it: an
// eighth of its own in whole MiB, 8 MiB at least and 64 MiB at most.
func DefaultTables(vram uint64) uint64 {
	const least, most, mib = 8 << 20, 64 << 20, 1 << 20
	return min(max(vram/8&^(mib-1), least), most)
}

func (c *GuestConfig) complete(guests int) error {
	if c.Channels == 0 {
		c.Channels = gf100.Channels
	}
	if c.Guaranteed == 0 {
		c.Guaranteed = min(gf100.Channels/guests, c.Channels)
	}
	if c.Tables == 0 {
		c.Tables = DefaultTables(c.VRAM)
	}
	c.Tables = wholePages(c.Tables)
	switch {
	case c.VRAM == 0 || c.VRAM%(1<<20) != 0:
		return fmt.Errorf("aggregator: guest %s: %d bytes of VRAM are not whole MiB", c.Name, c.VRAM)
	case c.Channels < 1 || c.Channels > gf100.Channels:
		return fmt.Errorf("aggregator: guest %s: %d channels: 1 to %d are possible", c.Name, c.Channels, gf100.Channels)
	case c.Guaranteed < 1 || c.Guaranteed > c.Channels:
		return fmt.Errorf("aggregator: guest %s: %d guaranteed channels of %d: 1 to %d are possible", c.Name, c.Guaranteed, c.Channels, c.Channels)
	case c.Tables < shadowpt.DirSize+shadowpt.SmallTableSize:
		return fmt.Errorf("aggregator: guest %s: %d KiB for page tables hold no address space", c.Name, c.Tables>>10)
	}
	if err := c.Shadow.Check(); err != nil {
		return fmt.Errorf("aggregator: guest %s: shadow: %w", c.Name, err)
	}
	return nil
}

// own is how much of the card's memory the aggregator keeps for the guest.
func (c *GuestConfig) own() uint64 { return c.Tables + uint64(c.Guaranteed)*gf100.InstanceSize }

// AddGuest gives a guest its share. Events go to ev from now on.
func (a *Aggregator) AddGuest(cfg GuestConfig, ev Events) (*Guest, error) {
	if err := cfg.complete(a.opts.Guests); err != nil {
		return nil, err
	}
	g, err := a.place(cfg, ev)
	if err != nil {
		return nil, fmt.Errorf("aggregator: guest %s: %w", cfg.Name, err)
	}
	if err := errors.Join(g.scrub(), g.scrubOwn()); err != nil {
		a.forget(g)
		return nil, err
	}
	if a.gate != nil {
		if err := a.gate.addGuest(g, cfg.Share, cfg.Group); err != nil {
			a.forget(g)
			return nil, fmt.Errorf("aggregator: guest %s: %w", cfg.Name, err)
		}
	}
	g.start()
	return g, nil
}

// place finds room for a guest.
func (a *Aggregator) place(cfg GuestConfig, ev Events) (*Guest, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := slices.Index(a.guests[:a.opts.Guests], nil)
	if index < 0 {
		return nil, fmt.Errorf("it would be one more than the %d that may be", a.opts.Guests)
	}
	promised := 0
	for _, g := range a.guests {
		if g != nil && !g.removed {
			promised += g.limits.Guaranteed
		}
	}
	if left := gf100.Channels - promised; cfg.Guaranteed > left {
		return nil, fmt.Errorf("%d guaranteed channels: of the card's %d the others have all but %d; guarantee fewer", cfg.Guaranteed, gf100.Channels, left)
	}
	own, err := a.memory.alloc(cfg.own(), pageSize)
	if err != nil {
		return nil, fmt.Errorf("page tables and channels: %w", err)
	}
	runs, err := a.memory.alloc(cfg.VRAM, shadowpt.BigPage)
	if err != nil {
		a.memory.release(own...)
		return nil, err
	}
	g := newGuest(a, index, cfg, newExtents(runs), own, ev)
	a.guests[index] = g
	return g, nil
}

// forget takes a guest's memory and place back.
func (a *Aggregator) forget(g *Guest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range g.extents.list {
		a.memory.release(run{e.card, e.size})
	}
	a.memory.release(g.ownRuns...)
	a.guests[g.index] = nil
}

// takeChannel gives ch a channel number of the card, unless none is left that
// others do not have to be able to count on. It takes number prefer if it is
// free.
func (a *Aggregator) takeChannel(ch *channel, prefer uint8) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	free, owed, used := 0, 0, make(map[*Guest]int)
	for _, c := range a.channels {
		if c == nil {
			free++
		} else {
			used[c.guest]++
		}
	}
	for _, g := range a.guests {
		if g != nil && g != ch.guest && !g.removed {
			owed += max(g.limits.Guaranteed-used[g], 0)
		}
	}
	if free == 0 || free <= owed && used[ch.guest] >= ch.guest.limits.Guaranteed {
		return false
	}
	if a.channels[prefer] != nil {
		prefer = uint8(slices.Index(a.channels[:], nil))
	}
	a.channels[prefer], ch.id = ch, prefer
	return true
}

func (a *Aggregator) returnChannel(ch *channel) {
	a.mu.Lock()
	a.channels[ch.id] = nil
	a.mu.Unlock()
}

// owner returns the channel that has the card's channel number id.
func (a *Aggregator) owner(id uint8) *channel {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.channels[id%gf100.Channels]
}

// ownerOf returns the channel whose instance block on the card is at inst.
func (a *Aggregator) ownerOf(inst uint64) *channel {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ch := range a.channels {
		if ch != nil && ch.inst == inst {
			return ch
		}
	}
	return nil
}

// listed returns the numbers of all channels that belong on the card's runlist.
func (a *Aggregator) listed() []uint8 {
	a.mu.Lock()
	defer a.mu.Unlock()
	var ids []uint8
	for i, ch := range a.channels {
		if ch != nil && ch.listed {
			ids = append(ids, uint8(i))
		}
	}
	return ids
}
