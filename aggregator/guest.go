package aggregator

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/aperture"
	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/dma"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is one virtual GPU's share of the card.
type Guest struct {
	agg      *Aggregator
	name     string
	index    int
	limits   GuestConfig
	extents  vram.Extents
	share    card.Share
	dma      *dma.Window // its memory
	mappings int         // of the process, while its windows are open; Aggregator.mu
	ev       Events
	stats    GuestStats

	windows windows // guarded by the virtual GPU's lock

	// mapped is what the client may map of the windows, or nil. moving is locked while
	// pages move (see aperture.Owner), and by each access to the guest's VRAM (read side).
	mapped atomic.Pointer[aperture.Set]
	left   atomic.Pointer[aperture.Set] // the last client's, which could not be closed, or nil
	moving sync.RWMutex

	mu               sync.Mutex // guards what follows
	wake             *sync.Cond // pending or current changed
	eventsReady      *sync.Cond // events are to be delivered
	eventsDelivered  *sync.Cond // events have been delivered
	channels         [gf100.Channels]guestChannel
	pending          requests
	current          requests
	binding          channelSet    // of current.bind, those not processed yet
	ending           bool          // current only ends channels
	leaving          *boundChannel // being closed, until it has left the card
	begun            uint64        // rounds of the worker
	done             uint64
	savedStates      [gf100.Channels]savedState // written by the worker only
	listed           channelSet                 // the guest's last runlist
	events           events
	delivering       bool
	deferred         invalidations // must be flushed before a channel of their spaces runs
	remapped         [2]uint64     // bus addresses whose mapping changed since the last update: from, to
	lost             bool          // some of them were unmapped: entries that name them are not counted as foreign
	policy           shadowpt.Policy
	blocked          bool                 // PFIFO lets no channel of the guest run
	served           [gf100.Engines]uint8 // by engine: number plus one of the channel last seen on it
	quarantineReason string               // "" if the guest is not quarantined
	errorBudget      leakyBucket
	tableBudget      leakyBucket // of table work
	closing          bool        // Remove was called
	ended            bool        // and the worker has ended

	quarantined atomic.Bool // quarantineReason is set

	// Any goroutine may use the tracker's Watch; the rest belongs to the worker.
	tracker *shadowpt.Tracker
	// eager is a copy of policy.Sync == SyncEager that needs no lock.
	eager atomic.Bool

	// The rest belongs to the goroutine that filled current: the worker for a round, or a
	// trap on the fast path, which uses inlineCredits only.
	inlineCredits int // inline requests left until a round grants more

	spaces       map[spaceKey]*space
	tableWork    *shadowpt.Work
	tableMeter   tableWorkMeter
	following    bool // the tracker follows the shadows
	stale        bool // shadows changed since the card's last invalidate
	cardTimedOut bool // a wait for the card timed out in this round

	// Channels that do not leave the card; channels and tables that wait for an invalidate.
	stuckChannels []*boundChannel
	waiting       []*boundChannel
	retiredSpaces []*space

	// Guarded by Aggregator.mu.
	live    map[*boundChannel]bool // that have a channel of the card
	removed bool                   // only its memory is left
	working sync.WaitGroup
}

// guestChannel is an entry of the guest's channel table: the requested state, and the
// card's channel behind it, if any.
type guestChannel struct {
	inst    uint64 // of the instance block, in the guest's VRAM
	bound   bool
	enabled bool
	ch      *boundChannel
}

func newGuest(a *Aggregator, index int, cfg GuestConfig, e vram.Extents, share card.Share, ev Events) *Guest {
	g := &Guest{
		agg: a, name: cfg.Name, index: index, limits: cfg, extents: e, share: share, dma: a.bus.Guest(index), ev: ev,
		live: make(map[*boundChannel]bool), spaces: make(map[spaceKey]*space), tableWork: shadowpt.NewWork(0),
	}
	g.tableMeter.guest = g
	g.tracker = shadowpt.NewTracker(&g.tableMeter, &g.tableMeter, g.tableWork, cfg.VRAM, 2*cfg.Tables)
	g.setPolicy(cfg.Shadow)
	g.following = cfg.Shadow.Scan == shadowpt.ScanIncremental
	g.wake, g.eventsReady, g.eventsDelivered = sync.NewCond(&g.mu), sync.NewCond(&g.mu), sync.NewCond(&g.mu)
	g.windows.init(g)
	return g
}

func (g *Guest) start() {
	g.working.Add(2)
	go g.work()
	go g.deliverEvents()
}

// Remove ends the guest's channels, scrubs its memory and frees everything. Calls under way
// return; no other may follow. If a channel does not leave the card, its memory stays out of
// use and Remove returns an error.
func (g *Guest) Remove() error {
	g.DetachMemory()
	g.mu.Lock()
	g.closing = true
	g.wake.Broadcast()
	g.mu.Unlock()
	g.working.Wait()
	g.agg.gate.RemoveGuest(g)
	if n := len(g.stuckChannels) + len(g.waiting) + len(g.retiredSpaces); n > 0 {
		g.outOfUse()
		return fmt.Errorf("aggregator: guest %s: %d channels and page tables are still in use by the card; their memory stays out of use until the card is reset", g.name, n)
	}
	if err := g.CloseWindows(); err != nil {
		g.outOfUse()
		return fmt.Errorf("%w; its memory stays out of use until the card is reset", err)
	}
	err := g.scrub()
	g.agg.forget(g)
	return err
}

// outOfUse keeps the memory of a removed guest allocated.
func (g *Guest) outOfUse() {
	g.share.Close(true)
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	g.removed = true
}

// scrub clears all of the guest's memory.
func (g *Guest) scrub() error {
	for _, e := range g.extents.List() {
		if err := g.agg.gpu.ScrubVRAM(e.Card, e.Size); err != nil {
			g.stats.ScrubFailures.Add(1)
			return fmt.Errorf("aggregator: guest %s: %w", g.name, err)
		}
		g.tracker.Wrote(e.Guest, e.Size)
	}
	return nil
}

// Reset ends all channels and scrubs the memory, as a function-level reset does. It waits,
// with a bound, until the channels have left the card, and drops undelivered events. The
// caller closes the windows.
func (g *Guest) Reset() error {
	g.mu.Lock()
	for id := range uint8(gf100.Channels) {
		g.setBound(id, 0, false)
		g.channels[id].enabled = false
	}
	g.pending.reset = true
	g.await()
	for g.delivering {
		g.eventsDelivered.Wait()
	}
	g.events = events{}
	g.mu.Unlock()
	if m := g.mapped.Load(); m != nil {
		m.Reset()
	}
	return g.scrub()
}

// await waits until the worker has completed all pending requests, or has ended. Each of its
// waits for the card is bounded, and a round does not wait again after one that timed out.
// Guest.mu is held.
func (g *Guest) await() {
	for round := g.begun + 1; g.done < round && !g.ended; {
		g.wake.Broadcast()
		g.wake.Wait()
	}
}

// MapDMA makes m the memory at the guest's bus address addr. Entries that name it become
// valid at the next update of the shadows.
func (g *Guest) MapDMA(addr uint64, m card.Mapping) error {
	err := g.dma.MapDMA(addr, m)
	g.remap(addr, uint64(len(m.Mem)), false)
	return err
}

// UnmapDMA takes back what is mapped at the n bytes from bus address addr on (see
// [card.DMA]). It returns when no access of the card uses it. Entries that still name it
// reach nothing; the next update of the shadows removes them.
func (g *Guest) UnmapDMA(addr, n uint64) {
	begin := time.Now()
	g.unmap(addr, n)
	g.stats.Unmaps.Add(1)
	g.stats.UnmapTime.Add(int64(time.Since(begin)))
}

// DetachMemory unmaps everything.
func (g *Guest) DetachMemory() { g.unmap(0, g.agg.bus.Size()) }

func (g *Guest) unmap(addr, n uint64) {
	g.remap(addr, n, true) // entries that an update finds meanwhile are lost, not foreign
	g.dma.UnmapDMA(addr, n)
	g.remap(addr, n, true)
}

func (g *Guest) remap(addr, n uint64, lost bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lost = g.lost || lost
	from, to := addr, addr+g.dma.Clip(addr, n)
	if from == to {
		return
	}
	if g.remapped[0] != g.remapped[1] {
		from, to = min(from, g.remapped[0]), max(to, g.remapped[1])
	}
	g.remapped = [2]uint64{from, to}
}

// Name returns the guest's name.
func (g *Guest) Name() string { return g.name }

// Owner returns the guest's number in the card's accounts. It is reused after Remove.
func (g *Guest) Owner() int { return g.index }

// VRAM returns the size of the guest's memory in bytes.
func (g *Guest) VRAM() uint64 { return g.extents.Size() }

// Stats returns the guest's counters.
func (g *Guest) Stats() *GuestStats { return &g.stats }
