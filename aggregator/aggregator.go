package aggregator

import (
	"fmt"
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Aggregator shares a card.
type Aggregator struct {
	ctl      control
	bus      bus
	pollArea uint64 // the card's USERD pages, in VRAM

	// The card's time at a moment of ours. Both count nanoseconds.
	cardEpoch uint64
	epoch     time.Time

	mu       sync.Mutex // see the package comment
	memory   partition
	guests   [MaxGuests]*Guest
	channels [gf100.Channels]*channel // by the card's channel number

	routing sync.WaitGroup
}

// New brings the card into service. The card must be fresh from a reset, and is
// the aggregator's alone until Close.
func New(c card.Card) (*Aggregator, error) {
	a := &Aggregator{ctl: control{card: c}, memory: newPartition(c.VRAMSize())}
	a.bus.intr = make(chan struct{}, 1)
	var err error
	a.pollArea, err = a.ctl.bringUp(func(n uint64) (uint64, error) { return a.allocOwn(n) })
	if err != nil {
		return nil, err
	}
	a.epoch = time.Now()
	a.cardEpoch = a.ctl.time()
	c.AttachHost(&a.bus)
	a.routing.Add(1)
	go a.route()
	return a, nil
}

func (a *Aggregator) time() uint64 { return a.cardEpoch + uint64(time.Since(a.epoch)) }

// Close takes the card out of service. All guests must have been removed.
func (a *Aggregator) Close() error {
	a.mu.Lock()
	for _, g := range a.guests {
		if g != nil {
			a.mu.Unlock()
			return fmt.Errorf("aggregator: closed while guest %s is there", g.name)
		}
	}
	a.mu.Unlock()
	a.ctl.card.DetachHost()
	close(a.bus.intr)
	a.routing.Wait()
	return nil
}

// allocOwn returns n bytes of card memory that no guest can reach, scrubbed.
func (a *Aggregator) allocOwn(n uint64) (uint64, error) {
	a.mu.Lock()
	r, ok := a.memory.take((n+pageSize-1)&^(pageSize-1), pageSize)
	a.mu.Unlock()
	if !ok {
		return 0, fmt.Errorf("aggregator: the card has no %d KiB in one piece left", n>>10)
	}
	if err := a.ctl.card.ScrubVRAM(r.addr, r.size); err != nil {
		return 0, err
	}
	return r.addr, nil
}

// freeOwn takes back what allocOwn gave.
func (a *Aggregator) freeOwn(addr, n uint64) {
	a.mu.Lock()
	a.memory.release(run{addr, (n + pageSize - 1) &^ (pageSize - 1)})
	a.mu.Unlock()
}

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
	// Tables bounds the memory of its page-table shadows, in bytes; 0 = 64 MiB.
	Tables uint64
}

const defaultTables = 64 << 20

// AddGuest gives a guest its share. Events go to ev from now on.
func (a *Aggregator) AddGuest(cfg GuestConfig, ev Events) (*Guest, error) {
	if cfg.Channels == 0 {
		cfg.Channels = gf100.Channels
	}
	if cfg.Tables == 0 {
		cfg.Tables = defaultTables
	}
	switch {
	case cfg.VRAM == 0 || cfg.VRAM%(1<<20) != 0:
		return nil, fmt.Errorf("aggregator: guest %s: %d bytes of VRAM are not whole MiB", cfg.Name, cfg.VRAM)
	case cfg.Channels < 1 || cfg.Channels > gf100.Channels:
		return nil, fmt.Errorf("aggregator: guest %s: %d channels: 1 to %d are possible", cfg.Name, cfg.Channels, gf100.Channels)
	}
	a.mu.Lock()
	index := -1
	for i, g := range a.guests {
		if g == nil {
			index = i
			break
		}
	}
	if index < 0 {
		a.mu.Unlock()
		return nil, fmt.Errorf("aggregator: guest %s would be the %dth; %d are possible", cfg.Name, MaxGuests+1, MaxGuests)
	}
	runs, err := a.memory.alloc(cfg.VRAM, shadowpt.BigPage)
	if err != nil {
		a.mu.Unlock()
		return nil, fmt.Errorf("aggregator: guest %s: %w", cfg.Name, err)
	}
	g := newGuest(a, index, cfg, newExtents(runs), ev)
	a.guests[index] = g
	a.mu.Unlock()
	for _, r := range runs {
		if err := a.ctl.card.ScrubVRAM(r.addr, r.size); err != nil {
			a.forget(g)
			return nil, err
		}
	}
	g.start()
	return g, nil
}

// forget takes a guest's memory and place back.
func (a *Aggregator) forget(g *Guest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range g.extents.list {
		a.memory.release(run{e.card, e.size})
	}
	a.guests[g.index] = nil
}

// takeChannel gives ch a channel number of the card.
func (a *Aggregator) takeChannel(ch *channel) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i := range a.channels {
		if a.channels[i] == nil {
			a.channels[i] = ch
			ch.id = uint8(i)
			return true
		}
	}
	return false
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
