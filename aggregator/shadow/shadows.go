// Package shadow decides when the page tables of one guest are shadowed. Package shadowpt says
// how.
//
// A guest's tables are data until a flush point: the guest submits work that could see them, or
// invalidates while a channel of the space is busy. The lazy policy defers an invalidate while
// every channel of its space is quiet: the guest sees it complete, and [Shadows.Defer] records
// it. No engine walks the shadow before the flush. Unmapped memory is out of the card's reach
// immediately; the next update removes the entries that name it.
//
// # Goroutines and locks
//
// The package has no goroutines. Methods that say so belong to the guest's worker, which alone uses
// the shadows, or need the guest's lock; any goroutine may call the others. [Shadows.mu] guards what
// those use of the [ShadowsState], and is a leaf.
package shadow

import (
	"sync"
	"time"

	"github.com/umbra-gpu/umbra/aggregator/card"
	"github.com/umbra-gpu/umbra/shadowpt"
)

// Guest is the guest whose tables are shadowed.
type Guest interface {
	shadowpt.Guest
	// Urgent reports whether a trap waits for the end of the work on tables, and no channel needs what
	// they map.
	Urgent() bool
}

// Card has the spaces that are shadows. It is a part of card.Share.
type Card interface {
	NewSpace() (card.Space, error)
	Invalidate(spaces ...card.Space) bool
}

// Config bounds a guest's shadows.
type Config struct {
	Format *shadowpt.Format // of the guest's tables
	Policy shadowpt.Policy
	VRAM   uint64  // bytes of the guest's memory
	Tables uint64  // bytes of memory for tables
	Rate   float64 // of work, in the unit of Stats.TableWork per second
}

// Shadows are the shadow page tables of one guest.
type Shadows struct {
	cfg   Config
	card  Card
	stats *Stats

	mu    sync.Mutex // guards state, but for what has another owner
	state ShadowsState

	tracker *shadowpt.Tracker

	// The rest belongs to the worker, as the tracker does except for its Watch.
	spaces    map[Key]*Space
	work      *shadowpt.Work
	meter     meter
	following bool // the tracker follows the shadows
	stale     bool // shadows changed since the card's last invalidate
	retired   []*Space
}

// ShadowsState is what Shadows know besides the tables, which are built again from the guest's.
type ShadowsState struct {
	Policy   shadowpt.Policy
	Deferred Dirs   // must be flushed before a channel of their spaces runs; guarded by the guest's lock
	Remapped Span   // of the memory map, since the last update
	Budget   Bucket // the worker's
}

// Span is a range of bus addresses whose mapping changed.
type Span struct {
	From, To uint64
	Lost     bool // part of it was unmapped: entries that name it are not counted as foreign
}

func (s Span) empty() bool { return s.From == s.To }

// New returns the shadows of a guest that has no channels yet.
func New(cfg Config, guest Guest, c Card, stats *Stats) *Shadows {
	sh := &Shadows{
		cfg: cfg, card: c, stats: stats, spaces: make(map[Key]*Space), work: shadowpt.NewWork(cfg.Format, 0, 4*cfg.Tables),
		meter: meter{guest: guest}, following: cfg.Policy.Scan == shadowpt.ScanIncremental,
		state: ShadowsState{Policy: cfg.Policy},
	}
	sh.meter.left = &sh.work.Left
	sh.tracker = shadowpt.NewTracker(&sh.meter, sh.work, cfg.VRAM, 2*cfg.Tables)
	return sh
}

// Policy returns how the tables are shadowed.
func (sh *Shadows) Policy() shadowpt.Policy {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	return sh.state.Policy
}

func (sh *Shadows) setPolicy(p shadowpt.Policy) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	sh.state.Policy = p
}

// Wrote notes a trapped write to the guest's VRAM.
func (sh *Shadows) Wrote(addr, n uint64) { sh.tracker.Wrote(addr, n) }

// Untrapped notes that the guest can, or can no longer, write n bytes of VRAM without a trap.
func (sh *Shadows) Untrapped(addr, n uint64, on bool) { sh.tracker.Untrapped(addr, n, on) }

// Remapped notes that the mapping of n bytes of bus addresses changed. With lost, they were
// unmapped.
func (sh *Shadows) Remapped(addr, n uint64, lost bool) {
	if n == 0 {
		return
	}
	sh.mu.Lock()
	defer sh.mu.Unlock()
	r := &sh.state.Remapped
	lost = lost || r.Lost
	if r.empty() {
		*r = Span{addr, addr + n, lost}
		return
	}
	*r = Span{min(addr, r.From), max(addr+n, r.To), lost}
}

// Defer records an invalidate of v that the guest sees complete. used are the spaces that it
// concerns and that channels use: others have no shadow, and a new shadow reads all tables. Newly
// mapped memory concerns all spaces. The guest's lock is held.
func (sh *Shadows) Defer(v Dirs, used []Key) {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if !sh.state.Remapped.empty() {
		sh.state.Deferred.Merge(v)
	}
	for _, k := range used {
		sh.state.Deferred.All = sh.state.Deferred.All || v.All
		sh.state.Deferred.add(k)
	}
	sh.stats.LazyInvalidates.Add(1)
}

// NeedsFlush reports whether a deferred invalidate must be flushed before a channel of the
// space runs. The guest's lock is held.
func (sh *Shadows) NeedsFlush(k Key) bool {
	return sh.state.Deferred.Has(k)
}

// TakeDeferred returns what was deferred. The caller updates it. The guest's lock is held.
func (sh *Shadows) TakeDeferred() Dirs {
	v := sh.state.Deferred
	sh.state.Deferred = Dirs{}
	return v
}

// Charge, for the worker, counts work against the guest's rate.
func (sh *Shadows) Charge(now time.Time, work float64) {
	sh.state.Budget.Spend(now, sh.cfg.Rate, work)
}

// Throttled, for the worker, returns how long the guest's table work exceeds its rate.
func (sh *Shadows) Throttled(now time.Time) time.Duration {
	return sh.state.Budget.Due(now, sh.cfg.Rate, 4*float64(sh.cfg.Tables))
}
