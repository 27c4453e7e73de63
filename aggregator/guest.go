package aggregator

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/aggregator/channels"
	"github.com/umbra-gpu/umbra/aggregator/dma"
	"github.com/umbra-gpu/umbra/aggregator/memory"
	"github.com/umbra-gpu/umbra/aggregator/report"
	"github.com/umbra-gpu/umbra/aggregator/shadow"
	"github.com/umbra-gpu/umbra/aggregator/vram"
	"github.com/umbra-gpu/umbra/aggregator/window"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is one virtual GPU's share of the card.
type Guest struct {
	*window.BARs // its views of its memory

	agg     *Aggregator
	name    string
	index   int
	limits  GuestConfig
	share   card.Share
	face    Face
	stats   GuestStats
	mem     *memory.Memory
	shadows *shadow.Shadows
	reports *report.Reporter

	mu       sync.Mutex // guards what follows
	channels *channels.Channels
	state    GuestState
	work     work
	wake     *sync.Cond // state or work changed

	tracing     tracing
	quarantined atomic.Bool  // state.Quarantined is set
	weight      atomic.Int64 // on a card with card.Slices

	removed bool // only its memory is left; Aggregator.mu
	working sync.WaitGroup
}

func newGuest(a *Aggregator, index int, cfg GuestConfig, e vram.Extents, share card.Share, face Face) *Guest {
	g := &Guest{agg: a, name: cfg.Name, index: index, limits: cfg, share: share, face: face}
	r := roomGuest{g}
	g.reports = report.New(listener{face, g}, r)
	g.mem = memory.New(a.gpu, e, g.dma(), r)
	g.shadows = shadow.New(shadow.Config{Format: face.Format(), Policy: cfg.Shadow, VRAM: cfg.VRAM, Tables: cfg.Tables, Rate: a.opts.TableRate},
		tables{g.mem, g}, share, &g.stats.Shadow)
	g.channels = channels.New(channels.Config{
		Lock: &g.mu, Format: face.Format(), Channels: cfg.Channels, GPU: a.gpu, Share: share, Gate: a.gate, Mem: g.mem, Shadows: g.shadows, Face: face,
	}, r, &g.stats.Channels)
	g.BARs = window.New(window.Config{
		Map: cfg.Map, Format: face.Format(), Limits: cfg.MapLimits, GPU: a.gpu, Mem: g.mem, Channels: g.channels, Shadows: g.shadows, Quota: a.mappings,
	}, &g.stats.Windows)
	g.wake = sync.NewCond(&g.mu)
	return g
}

// roomGuest is the guest as its rooms see it.
type roomGuest struct{ *Guest }

// Wrote implements memory.Watcher: it is called after each trapped write to the guest's VRAM.
func (r roomGuest) Wrote(addr, n uint64) { r.shadows.Wrote(addr, n) }

// CountBadPut implements gate.Guest.
func (r roomGuest) CountBadPut() { r.stats.BadPut.Add(1) }

// tables is the guest as its shadows see it.
type tables struct {
	*memory.Memory
	guest *Guest
}

// Urgent implements shadow.Guest: a reset waits, which ends all channels.
func (t tables) Urgent() bool {
	t.guest.mu.Lock()
	defer t.guest.mu.Unlock()
	return t.guest.work.current.Reset || t.guest.state.Pending.Reset
}

// locked calls f with Guest.mu held.
func (g *Guest) locked(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// Remove ends the guest's channels, scrubs its memory and frees everything. Calls under way
// return; no other may follow. If a channel does not leave the card, its memory stays out of
// use and Remove returns an error.
func (g *Guest) Remove() error {
	g.tracing.endTrace()
	g.DetachMemory()
	g.locked(func() { g.work.closing = true; g.wake.Broadcast() })
	g.working.Wait()
	g.reports.Close()
	g.agg.gate.RemoveGuest(roomGuest{g})
	if n := len(g.channels.CardChannels()) + g.shadows.Retired(); n > 0 {
		return g.outOfUse(fmt.Errorf("%d channels and page tables are still in use by the card", n))
	}
	if err := g.CloseWindows(); err != nil {
		return g.outOfUse(err)
	}
	err := g.scrub()
	g.agg.forget(g)
	return err
}

// outOfUse keeps the memory of a removed guest allocated, because of err.
func (g *Guest) outOfUse(err error) error {
	g.agg.leave(g, func() { g.removed = true })
	g.share.Close(true)
	return fmt.Errorf("aggregator: guest %s: %w; its memory stays out of use until the server is restarted", g.name, err)
}

// scrub clears all of the guest's memory.
func (g *Guest) scrub() error {
	if err := g.mem.Scrub(); err != nil {
		g.stats.ScrubFailures.Add(1)
		return fmt.Errorf("aggregator: guest %s: %w", g.name, err)
	}
	return nil
}

// Reset ends all channels, as a function-level reset does, and scrubs the memory unless keep says that
// the guest sleeps. It waits, with a bound, until the channels have left the card, and drops undelivered
// events. The guest's driver may bind the channels again, see Forget. The caller closes the windows.
func (g *Guest) Reset(keep bool) error {
	g.locked(func() {
		for id := range uint32(channels.Max) {
			g.bind(id, false)
		}
		g.channels.ForbidAll()
		g.state.Pending.Reset = true
		g.await()
	})
	g.reports.Drop()
	g.ResetWindows()
	if keep {
		return nil
	}
	return g.scrub()
}

// Forget drops what the card saved of unbound channels, which a reset keeps. It follows the reset
// at the end of a client: the next one must not restore any of it.
func (g *Guest) Forget() { g.locked(g.channels.Forget) }

// Shadow returns how the guest's tables are shadowed.
func (g *Guest) Shadow() shadowpt.Policy { return g.shadows.Policy() }

// SetShadow changes the policy. It returns when the shadows follow it; the guest notices
// nothing.
func (g *Guest) SetShadow(p shadowpt.Policy) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.state.Pending.Policy = &p
	g.await()
}

// MapDMA makes m the memory at the guest's bus address addr. Entries that name it become
// valid at the next update of the shadows.
func (g *Guest) MapDMA(addr uint64, m card.Mapping) error {
	err := g.dma().MapDMA(addr, m)
	g.remapped(addr, uint64(len(m.Mem)), false)
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
	g.remapped(addr, n, true) // entries that an update finds meanwhile are lost, not foreign
	g.dma().UnmapDMA(addr, n)
	g.remapped(addr, n, true)
}

func (g *Guest) remapped(addr, n uint64, lost bool) {
	g.shadows.Remapped(addr, g.dma().Clip(addr, n), lost)
}

func (g *Guest) dma() *dma.Window { return g.agg.bus.Guest(g.index) }

// Name returns the guest's name.
func (g *Guest) Name() string { return g.name }

// Owner returns the guest's number in the card's accounts. It is reused after Remove.
func (g *Guest) Owner() int { return g.index }

// MaxChannels returns how many channels the guest may have.
func (g *Guest) MaxChannels() int { return g.limits.Channels }

// VRAM returns the size of the guest's memory in bytes.
func (g *Guest) VRAM() uint64 { return g.mem.Size() }

// Extents returns where the guest's memory lies on the card.
func (g *Guest) Extents() []vram.Extent { return g.mem.Extents() }

// Tables returns the card's memory that holds the guest's shadow page tables.
func (g *Guest) Tables() []card.Run { return g.share.Tables() }

// BusAddress returns the card's address of address addr of the guest's own memory.
func (g *Guest) BusAddress(addr uint64) uint64 { return g.dma().At(addr) }

// CardChannel returns the card's channel id, nil if it is none of the guest's.
func (g *Guest) CardChannel(id uint32) card.Channel { return g.channels.ByNumber(id) }

// Memory returns the guest's memory, for its face.
func (g *Guest) Memory() *memory.Memory { return g.mem }

// ChannelStats returns the counters of its channels, for its face.
func (g *Guest) ChannelStats() *channels.Stats { return &g.stats.Channels }

// Stats returns the guest's counters.
func (g *Guest) Stats() *GuestStats { return &g.stats }
