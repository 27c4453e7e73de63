package aggregator

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/card/homes"
	"github.com/umbra-gpu/umbra/mmio/gf100"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is one virtual GPU's share of the card.
type Guest struct {
	agg     *Aggregator
	name    string
	index   int
	limits  GuestConfig
	extents extents
	ownRuns []run // of the card's memory, the aggregator's for this guest
	pieces  int   // that the guest's memory may lie in while its windows are open; Aggregator.mu
	ev      Events
	stats   GuestStats

	windows windows // guarded by the virtual GPU's lock

	// mapped is what the client may map of the windows, or nil. moving is locked while
	// pages move (see homes.Owner), and by each access to the guest's VRAM (read side).
	mapped atomic.Pointer[homes.Set]
	left   atomic.Pointer[homes.Set] // the last client's, which could not be closed, or nil
	moving sync.RWMutex

	mu               sync.Mutex // guards what follows
	wake             *sync.Cond // there is something to do, or something was done
	eventsReady      *sync.Cond // there are news
	eventsDelivered  *sync.Cond // the guest has been told
	channels         [gf100.Channels]guestChannel
	pending          requests
	current          requests
	binding          channelSet // of doing.bind, those whose turn is still to come
	ending           bool       // doing starts nothing
	leaving          *channel   // that is being closed, until the card has let go of it
	begun            uint64     // rounds of work
	done             uint64
	kept             [gf100.Channels]kept // written by the guest's goroutine alone
	events           events
	delivering       bool
	deferred         invalidations // put off until the next work that could see them
	remapped         [2]uint64     // bus addresses whose mapping changed since the last scan: from, to
	policy           shadowpt.Policy
	detached         card.Bus             // memory that the guest has, but the card no longer reaches
	blocked          bool                 // PFIFO lets no channel of the guest run
	served           [gf100.Engines]uint8 // number plus one of the channel that each engine was last seen with
	quarantineReason string               // why the guest is in safe mode
	errorBudget      leakyBucket
	tableBudget      leakyBucket // of table work
	closing          bool        // Remove was called
	ended            bool        // and everything has ended

	quarantined atomic.Bool // unsafe is set

	// tracker's Watch is anybody's, the rest the guest's goroutine's.
	tracker *shadowpt.Tracker
	// eager is a copy of policy.Sync == SyncEager that needs no lock.
	eager atomic.Bool

	// Owned by who has filled doing: the guest's goroutine for a round, and at its end, or a
	// trap that does a little in its place (see atonce.go), which uses the next two only.
	listed        channelSet // the guest's channels on its last runlist
	inlineCredits int        // traps that may ask the card before a round has done so

	own          partition // what is free of ownRuns, all of it zero
	spaces       map[spaceKey]*space
	tableWork    *shadowpt.Work
	tableMeter   tableWorkMeter
	following    bool // the tracker follows the shadows
	stale        bool // shadows changed since the card's last invalidate
	uncertain    bool // the last invalidate did not come to its end
	cardTimedOut bool // the card was waited for in vain in this round

	// What the card has not let go of: channels, and, after those, tables and
	// channels' names that wait for an invalidate.
	stuckChannels []*channel
	waiting       []*channel
	retiredSpaces []*space

	removed bool // guarded by Aggregator.mu: only its memory is still there
	working sync.WaitGroup
}

// guestChannel is an entry of the guest's channel table: what the guest asked
// for, and the card's channel that stands behind it, if any.
type guestChannel struct {
	inst    uint64 // of the instance block, in the guest's VRAM
	bound   bool
	enabled bool
	ch      *channel
}

func newGuest(a *Aggregator, index int, cfg GuestConfig, e extents, own []run, ev Events) *Guest {
	g := &Guest{
		agg: a, name: cfg.Name, index: index, limits: cfg, extents: e, ownRuns: own, ev: ev,
		spaces: make(map[spaceKey]*space), tableWork: shadowpt.NewWork(0),
	}
	g.own.release(own...)
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

// Remove ends the guest's channels, scrubs its memory and gives everything back.
// Calls that are under way return; no other may follow. If the card does not let
// go of a channel, what belongs to it stays out of use, and Remove says so.
func (g *Guest) Remove() error {
	g.DetachMemory()
	g.mu.Lock()
	g.closing = true
	g.wake.Broadcast()
	g.mu.Unlock()
	g.working.Wait()
	if g.agg.gate != nil {
		g.agg.gate.removeGuest(g)
	}
	if n := len(g.stuckChannels) + len(g.waiting) + len(g.retiredSpaces); n > 0 {
		g.outOfUse()
		return fmt.Errorf("aggregator: guest %s: the card has not let go of %d channels and page tables; their memory stays out of use until it is reset", g.name, n)
	}
	if err := g.CloseWindows(); err != nil {
		g.outOfUse()
		return fmt.Errorf("%w; its memory stays out of use until the card is reset", err)
	}
	err := g.scrub()
	g.agg.forget(g)
	return err
}

// outOfUse keeps the memory of a guest that has ended from everybody.
func (g *Guest) outOfUse() {
	g.agg.mu.Lock()
	defer g.agg.mu.Unlock()
	g.removed = true
}

// scrub clears all of the guest's memory.
func (g *Guest) scrub() error {
	for _, e := range g.extents.list {
		if err := g.agg.ctl.card.ScrubVRAM(e.card, e.size); err != nil {
			g.stats.ScrubFailures.Add(1)
			return fmt.Errorf("aggregator: guest %s: %w", g.name, err)
		}
		g.tracker.Wrote(e.guest, e.size)
	}
	return nil
}

// scrubOwn clears what the aggregator keeps for the guest, before it is used.
func (g *Guest) scrubOwn() error {
	for _, r := range g.ownRuns {
		if err := g.agg.ctl.card.ScrubVRAM(r.addr, r.size); err != nil {
			return fmt.Errorf("aggregator: guest %s: %w", g.name, err)
		}
	}
	return nil
}

// Reset ends all channels and scrubs the memory, as a function-level reset does.
// It waits, with a bound, until the card has let go. What the guest has not been
// told by then, it is not told any more. The windows are the caller's to close.
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
	if g.detached != nil && g.quarantineReason == "" {
		g.agg.bus.attach(g.index, g.detached)
		g.noteRemapped(0, g.agg.bus.window())
		g.detached = nil
	}
	g.mu.Unlock()
	if m := g.mapped.Load(); m != nil {
		m.Reset()
	}
	return g.scrub()
}

// await waits until the guest's goroutine has done all that is in todo, or has
// ended. Each of its waits for the card is bounded, and a round does not wait
// for the card again after one that failed. Guest.mu is held.
func (g *Guest) await() { g.awaitUntil(time.Time{}) }

// awaitGrace is how many looks behind its bound a wait has before it is in vain, each a
// while after the one before: who stood still for long stood still with the card and the
// goroutine, and they go on when it does. More than the round's own wait has (pollGrace).
const awaitGrace = 2 * pollGrace

// awaitUntil is await with a bound, and says whether it did without it.
func (g *Guest) awaitUntil(deadline time.Time) bool {
	var again *time.Timer
	if !deadline.IsZero() {
		again = time.AfterFunc(time.Until(deadline), g.lookUp)
		defer again.Stop()
	}
	late := 0
	for round := g.begun + 1; g.done < round && !g.ended; {
		if now := time.Now(); again != nil && !now.Before(deadline) {
			if late++; late > awaitGrace {
				return false
			}
			deadline = now.Add(pollMax)
			again.Reset(pollMax)
		}
		g.wake.Broadcast()
		g.wake.Wait()
	}
	return true
}

// lookUp makes everybody who waits look at the clock.
func (g *Guest) lookUp() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wake.Broadcast()
}

// AttachMemory gives the guest's channels the memory behind its bus addresses.
// From then on, before pages of it go, Unmapped is called, or DetachMemory.
func (g *Guest) AttachMemory(m card.Bus) {
	g.setDetached(nil)
	g.agg.bus.attach(g.index, m)
	g.Mapped(0, g.agg.bus.window())
}

// Mapped is called when n bytes of bus addresses from addr on have come. Entries
// that name them become valid when the shadows are next brought up to date.
func (g *Guest) Mapped(addr, n uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.noteRemapped(addr, n)
}

// noteMoved widens moved. Guest.mu is held.
func (g *Guest) noteRemapped(addr, n uint64) {
	window := g.agg.bus.window()
	from, to := min(addr, window), min(addr+min(n, window), window)
	if g.remapped[0] != g.remapped[1] {
		from, to = min(from, g.remapped[0]), max(to, g.remapped[1])
	}
	g.remapped = [2]uint64{from, to}
}

func (g *Guest) setDetached(m card.Bus) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.detached = m
}

// DetachMemory takes it away. When it returns, nothing of the card uses it.
func (g *Guest) DetachMemory() {
	g.setDetached(nil)
	g.agg.bus.attach(g.index, nil)
	g.mu.Lock()
	g.noteRemapped(0, g.agg.bus.window())
	g.pending.invalidate.unmapped = true // whatever the next round is for
	g.mu.Unlock()
	if !g.agg.ctl.invalidate() {
		g.stats.CardTimeout.Add(1)
		g.agg.bus.barrier()
	}
}

// Unmapped is called when n bytes of bus addresses from addr on have gone, before
// anybody is told that they have. It returns when no shadow names them and no
// access of the card still uses them. If the card does not say so in time, the
// guest loses all of its memory, without asking the card, and its channels: a
// reset that ends safe mode gives the memory back.
func (g *Guest) Unmapped(addr, n uint64) {
	begin := time.Now()
	g.mu.Lock()
	if g.detached != nil { // already
		g.mu.Unlock()
		return
	}
	m := g.memory()
	g.noteRemapped(addr, n)
	g.pending.invalidate.all, g.pending.invalidate.unmapped = true, true
	inTime := g.awaitUntil(begin.Add(g.agg.opts.UnmapTimeout))
	lost := !inTime || g.uncertain
	g.mu.Unlock()
	if lost {
		g.quarantine("the card does not say that it has let go of memory")
		g.agg.bus.attach(g.index, nil)
		g.agg.bus.barrier()
		g.setDetached(m)
	}
	g.stats.Unmaps.Add(1)
	g.stats.UnmapTime.Add(int64(time.Since(begin)))
}

// Name returns the guest's name.
func (g *Guest) Name() string { return g.name }

// Owner is what the card's accounts know the guest by. It is another guest's when
// this one has been removed.
func (g *Guest) Owner() int { return g.index }

// VRAM returns the size of the guest's memory in bytes.
func (g *Guest) VRAM() uint64 { return g.extents.size }

// Stats returns the guest's counters.
func (g *Guest) Stats() *GuestStats { return &g.stats }
