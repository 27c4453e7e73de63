package aggregator

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/vram"
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

	// The card's time at epoch, in nanoseconds.
	cardEpoch uint64
	epoch     time.Time

	mu       sync.Mutex // see the package comment
	memory   vram.Allocator
	guests   [MaxGuests]*Guest
	channels [gf100.Channels]*channel // by the card's channel number

	routeMu sync.Mutex // held while the card's interrupts are read and routed
	routing sync.WaitGroup
	closing chan struct{} // closed by Close

}

// Options are an aggregator's limits and its scheduler. Zero values are the defaults.
type Options struct {
	// Guests is how many guests there may be at a time, 1 to 32; default 32. They share
	// the card's bus addresses: the card reaches the first 1 TiB / Guests of each guest's
	// memory, with Guests rounded up to a power of two.
	Guests int
	// CardTimeout is the timeout for one card operation, plus 20 ms for scheduling delay;
	// default 500 ms. A guest whose channels do not leave the card in time is quarantined.
	CardTimeout time.Duration
	// UnmapTimeout is the timeout for the whole wait when memory is unmapped, plus 40 ms
	// for scheduling delay; default 1.5 s, because QEMU waits 5 s for the answer. A guest
	// for which it expires is quarantined, and the card loses access to its memory.
	UnmapTimeout time.Duration
	// ErrorBurst and ErrorRate bound how often a guest may stop the card's engines with
	// faults and errors: a burst, and a rate per second. Defaults 4096 and 512. A guest
	// beyond that is quarantined.
	ErrorBurst, ErrorRate float64
	// InterruptBurst is how many times in a row the interrupt handler reads the card's
	// events before it pauses for InterruptPause. Defaults 64 and 1 ms.
	InterruptBurst int
	InterruptPause time.Duration
	// InvalidateDirs is how many page directories one invalidate of the card may name,
	// default 32. With more it invalidates all guests' translations.
	InvalidateDirs int
	// TableRate bounds the work on one guest's page tables, in bytes a second; one is about
	// a nanosecond of work (see tableWorkMeter). Default 512 MiB, half a processor. Beyond
	// it the guest's invalidates and submissions wait; unmapping memory does not.
	TableRate float64
	// Map bounds what a guest's mapped windows cost, if GuestConfig does not say so.
	Map aperture.Limits
	// Scheduler shares the card's time. If nil, work is forwarded immediately.
	Scheduler *sched.Config
	// Clock is the scheduler's time; nil is the time since New.
	Clock func() time.Duration

	alarm alarm // for the scheduler; nil is a timer
}

// New brings the card into service. The card must be fresh from a reset and belongs to the
// aggregator until Close.
func New(c card.Card) (*Aggregator, error) { return NewWith(c, Options{}) }

// NewWith is New with limits.
func NewWith(c card.Card, o Options) (*Aggregator, error) {
	o.complete()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	a := &Aggregator{opts: o}
	a.memory.Release(vram.Run{Size: c.VRAMSize()})
	a.ctl.init(c, o.CardTimeout, o.InvalidateDirs)
	a.bus.init(o.Guests)
	a.closing = make(chan struct{})
	var err error
	a.pollArea, err = a.ctl.bringUp(a.allocCardMemory)
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
		return fmt.Errorf("aggregator: close: guest %s is still there", g[0].name)
	}
	a.ctl.card.DetachHost()
	close(a.closing)
	a.routing.Wait()
	if a.gate != nil {
		a.gate.close()
	}
	return nil
}

// allocCardMemory returns n scrubbed bytes of card memory that no guest can reach.
func (a *Aggregator) allocCardMemory(n uint64) (uint64, error) {
	a.mu.Lock()
	r, ok := a.memory.Take(vram.WholePages(n), vram.PageSize)
	a.mu.Unlock()
	if !ok {
		return 0, fmt.Errorf("aggregator: the card has no %d contiguous KiB left", n>>10)
	}
	return r.Addr, a.ctl.card.ScrubVRAM(r.Addr, r.Size)
}

// Free returns the number of free bytes of the card's memory.
func (a *Aggregator) Free() uint64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.memory.Left()
}

// GuestConfig is what a guest gets.
type GuestConfig struct {
	Name     string
	VRAM     uint64 // bytes, a multiple of 1 MiB
	Channels int    // how many it may have bound at a time; 0 means all
	// Guaranteed is how many of them are reserved for it; 0 is an even share for
	// Options.Guests guests.
	Guaranteed int
	// Tables is the memory for its shadow page tables in bytes, allocated when the guest
	// is added. Channels beyond the guaranteed have their instance blocks there, too. 0 is
	// DefaultTables.
	Tables uint64
	// Shadow is how its page tables are shadowed.
	Shadow shadowpt.Policy
	// Map says which windows its clients may map.
	Map       aperture.Map
	MapLimits aperture.Limits // the zero value is Options.Map
	// Share is its share of the card's time, with a scheduler.
	Share sched.NodeConfig
	// Group says which of its channels are one process for the scheduler.
	Group Grouping
}

// Overhead bounds the card memory that the aggregator uses besides each guest's tables: instance
// blocks of guaranteed channels, runlists, USERD, and gaps because guests begin at large
// pages.
const Overhead = 8 << 20

// DefaultTables is the default memory for page tables: an eighth of VRAM in whole MiB, at
// least 8 MiB and at most 64 MiB.
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
	c.Tables = vram.WholePages(c.Tables)
	switch {
	case c.VRAM == 0 || c.VRAM%(1<<20) != 0:
		return fmt.Errorf("aggregator: guest %s: %d bytes of VRAM: must be whole MiB", c.Name, c.VRAM)
	case c.Channels < 1 || c.Channels > gf100.Channels:
		return fmt.Errorf("aggregator: guest %s: %d channels: must be 1 to %d", c.Name, c.Channels, gf100.Channels)
	case c.Guaranteed < 1 || c.Guaranteed > c.Channels:
		return fmt.Errorf("aggregator: guest %s: %d guaranteed channels of %d: must be 1 to %d", c.Name, c.Guaranteed, c.Channels, c.Channels)
	case c.Tables < shadowpt.DirSize+shadowpt.SmallTableSize:
		return fmt.Errorf("aggregator: guest %s: %d KiB for page tables: too little for one address space", c.Name, c.Tables>>10)
	}
	if err := c.Shadow.Check(); err != nil {
		return fmt.Errorf("aggregator: guest %s: shadow: %w", c.Name, err)
	}
	return nil
}

// privateBytes is the card memory that the aggregator keeps for the guest.
func (c *GuestConfig) privateBytes() uint64 {
	return c.Tables + uint64(c.Guaranteed)*gf100.InstanceSize
}

// AddGuest adds a guest. Its events go to ev from now on.
func (a *Aggregator) AddGuest(cfg GuestConfig, ev Events) (*Guest, error) {
	if err := cfg.complete(a.opts.Guests); err != nil {
		return nil, err
	}
	g, err := a.allocGuest(cfg, ev)
	if err != nil {
		return nil, fmt.Errorf("aggregator: guest %s: %w", cfg.Name, err)
	}
	if err := errors.Join(g.scrub(), g.scrubPrivate()); err != nil {
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

// allocGuest allocates a guest's memory and number.
func (a *Aggregator) allocGuest(cfg GuestConfig, ev Events) (*Guest, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	index := slices.Index(a.guests[:a.opts.Guests], nil)
	if index < 0 {
		return nil, fmt.Errorf("limit of %d guests reached", a.opts.Guests)
	}
	promised := 0
	for _, g := range a.guests {
		if g != nil && !g.removed {
			promised += g.limits.Guaranteed
		}
	}
	if left := gf100.Channels - promised; cfg.Guaranteed > left {
		return nil, fmt.Errorf("%d guaranteed channels: only %[3]d of the card's %[2]d are not guaranteed to others; guarantee fewer", cfg.Guaranteed, gf100.Channels, left)
	}
	private, err := a.memory.Alloc(cfg.privateBytes(), vram.PageSize)
	if err != nil {
		return nil, fmt.Errorf("page tables and channels: %w", err)
	}
	runs, err := a.memory.Alloc(cfg.VRAM, shadowpt.BigPage)
	if err != nil {
		a.memory.Release(private...)
		return nil, err
	}
	g := newGuest(a, index, cfg, vram.NewExtents(runs), private, ev)
	a.guests[index] = g
	return g, nil
}

// forget frees a guest's memory and number.
func (a *Aggregator) forget(g *Guest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range g.extents.List() {
		a.memory.Release(vram.Run{Addr: e.Card, Size: e.Size})
	}
	a.memory.Release(g.privateRuns...)
	a.guests[g.index] = nil
}

// takeChannel assigns a channel number of the card to ch, unless all free ones are
// guaranteed to other guests. It takes number prefer if it is free.
func (a *Aggregator) takeChannel(ch *channel, prefer uint8) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	free, reserved, used := 0, 0, make(map[*Guest]int)
	for _, c := range a.channels {
		if c == nil {
			free++
		} else {
			used[c.guest]++
		}
	}
	for _, g := range a.guests {
		if g != nil && g != ch.guest && !g.removed {
			reserved += max(g.limits.Guaranteed-used[g], 0)
		}
	}
	if free == 0 || free <= reserved && used[ch.guest] >= ch.guest.limits.Guaranteed {
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

// owner returns the channel with the card's number id.
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

// listed returns the numbers of all channels on the card's runlist.
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
