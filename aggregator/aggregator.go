package aggregator

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/dma"
	"github.com/umbra-gpu/umbra/aggregator/gate"
	"github.com/umbra-gpu/umbra/aggregator/sched"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/aggregator/window"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Aggregator shares a card.
type Aggregator struct {
	opts     Options
	gpu      card.GPU
	bus      *dma.Windows
	gate     *gate.Gate    // nil without a scheduler, as on a card with card.Slices
	mappings *window.Quota // nil if the card's pages have one place

	// The card's time at epoch, in nanoseconds.
	cardEpoch uint64
	epoch     time.Time

	adding sync.Mutex // one AddGuest at a time
	mu     sync.Mutex // see the package comment
	guests [MaxGuests]*Guest
	past   channels.Busy // of guests that were removed, on a card with card.Slices
}

// New shares a card, which belongs to the aggregator until Close.
func New(gpu card.GPU, o Options) (*Aggregator, error) {
	o.complete()
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("aggregator: %w", err)
	}
	if gpu.Slices() != nil && o.Scheduler != nil {
		return nil, errSliced
	}
	a := &Aggregator{opts: o, gpu: gpu, bus: dma.New(o.Guests, gpu), epoch: time.Now(), cardEpoch: gpu.Time()}
	if o.Scheduler != nil {
		if o.Clock == nil {
			o.Clock = func() time.Duration { return time.Since(a.epoch) }
		}
		var err error
		if a.gate, err = gate.New(gpu.Meter(), gpu.Engines(), *o.Scheduler, o.Clock, nil); err != nil {
			return nil, err
		}
	}
	if r := gpu.Relocator(); r != nil {
		a.mappings = window.NewQuota(r.MaxMappings(), o.Guests)
	}
	return a, nil
}

func (a *Aggregator) time() uint64 { return a.cardEpoch + uint64(time.Since(a.epoch)) }

// Close takes the card out of service. All guests must have been removed.
func (a *Aggregator) Close() error {
	if g := a.everybody(); len(g) > 0 {
		return fmt.Errorf("aggregator: close: guest %s is still there", g[0].name)
	}
	a.gpu.Close()
	a.gate.Close()
	return nil
}

// Free returns the number of free bytes of the card's memory.
func (a *Aggregator) Free() uint64 { return a.gpu.FreeBytes() }

// Culling is that of the card.
func (a *Aggregator) Culling() card.Culling { return a.gpu.Culling() }

// everybody lists the guests, except those of which only the memory is left.
func (a *Aggregator) everybody() []*Guest {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.present()
}

// present is everybody with mu held.
func (a *Aggregator) present() (list []*Guest) {
	for _, g := range a.guests {
		if g != nil && !g.removed {
			list = append(list, g)
		}
	}
	return list
}

// AddGuest adds a guest with a face. The face gets its events from now on.
func (a *Aggregator) AddGuest(cfg GuestConfig, face Face) (*Guest, error) {
	if err := cfg.complete(&a.opts); err != nil {
		return nil, fmt.Errorf("aggregator: guest %s: %w", cfg.Name, err)
	}
	a.adding.Lock()
	defer a.adding.Unlock()
	g, err := a.addGuest(cfg, face)
	if err != nil {
		return nil, fmt.Errorf("aggregator: guest %s: %w", cfg.Name, err)
	}
	return g, nil
}

func (a *Aggregator) addGuest(cfg GuestConfig, face Face) (*Guest, error) {
	a.mu.Lock()
	index := slices.Index(a.guests[:a.opts.Guests], nil)
	a.mu.Unlock()
	if index < 0 {
		return nil, fmt.Errorf("limit of %d guests reached", a.opts.Guests)
	}
	share, err := a.gpu.NewShare(card.ShareConfig{Number: index, Class: face.Class(), Channels: cfg.Channels, Guaranteed: cfg.Guaranteed, Tables: cfg.Tables})
	if err != nil {
		return nil, err
	}
	runs, err := share.AllocVRAM(cfg.VRAM, shadowpt.BigPage)
	if err != nil {
		share.Close(false)
		return nil, err
	}
	g := newGuest(a, index, cfg, vram.NewExtents(runs), share, face)
	if a.gpu.Slices() != nil {
		err = g.setWeight(cfg.Share)
	} else {
		err = a.gate.AddGuest(roomGuest{g}, cfg.Share, cfg.Group)
	}
	if err != nil {
		g.reports.Close()
		share.Close(false)
		return nil, err
	}
	a.mu.Lock()
	a.guests[index] = g
	a.mu.Unlock()
	g.working.Go(g.run)
	return g, nil
}

// forget frees a guest's memory and number.
func (a *Aggregator) forget(g *Guest) {
	g.share.Close(false)
	a.leave(g, func() { a.guests[g.index] = nil })
}

// Schedule returns how the card is shared, false without a scheduler.
func (a *Aggregator) Schedule() (sched.Config, bool) { return a.gate.Schedule() }

// SetSchedule changes how the card is shared, under load.
func (a *Aggregator) SetSchedule(c sched.Config) error { return a.gate.SetSchedule(c) }

// Ledger returns what the card, its guests, their groups and channels had of the card. It is
// empty without a scheduler, but that a card with card.Slices has the card and its guests.
func (a *Aggregator) Ledger() []sched.Entry {
	if a.gpu.Slices() != nil {
		return a.meterLedger()
	}
	return a.gate.Ledger()
}

// ScheduleCounts returns the scheduler's counts of unusual events.
func (a *Aggregator) ScheduleCounts() sched.Counts { return a.gate.Counts() }

// RequestLimit returns how long one request of a guest may run; 0 is for ever.
func (g *Guest) RequestLimit() time.Duration { return g.agg.gate.RequestLimit(roomGuest{g}) }

// SetShare changes a guest's weight, cap, priority and limits, under load: one call at a time. A card with
// card.Slices has weights only.
func (g *Guest) SetShare(c sched.NodeConfig) error {
	if g.agg.gpu.Slices() != nil {
		return g.setWeight(c)
	}
	return g.agg.gate.SetShare(roomGuest{g}, c)
}
