package aggregator

import (
	"time"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// Deferral of shadow updates, by shadowpt.Policy.
//
// A guest's tables are data until a flush point: the guest submits work that could see
// them, or invalidates while a channel of the space is busy. The lazy policy defers an
// invalidate while every channel of its space is quiet: the guest sees it complete, and
// Guest.deferred records it. No engine walks the shadow before the flush. submit, run and a
// runlist flush deferred invalidates before a channel of the space runs. A channel that is
// being unbound or taken off the card counts as quiet when it has no work left. Unmapped memory
// is out of the card's reach immediately; the next update removes the entries that name it.

// setPolicy records a policy. Guest.mu is held, or the guest is not shared yet.
func (g *Guest) setPolicy(p shadowpt.Policy) {
	g.policy = p
	g.eager.Store(p.Sync == shadowpt.SyncEager)
}

// Shadow returns how the guest's tables are shadowed.
func (g *Guest) Shadow() shadowpt.Policy {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.policy
}

// SetShadow changes the policy. It returns when the shadows follow it; the guest notices
// nothing.
func (g *Guest) SetShadow(p shadowpt.Policy) error {
	if err := p.Check(); err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.pending.policy = &p
	g.await()
	return nil
}

// wrote is called after each trapped write to the guest's VRAM.
func (g *Guest) wrote(addr, n uint64) {
	if !g.tracker.Wrote(addr, n) || !g.eager.Load() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.pending.entries {
		g.pending.entries = true
		g.wake.Broadcast()
	}
}

// mayDefer reports whether an invalidate may be deferred if its channels are quiet:
// nothing current lets a channel run, and no channel that is being unbound has state to
// write to guest memory. After the invalidate the guest may reuse that memory. Guest.mu is
// held.
func (g *Guest) mayDefer() bool {
	if !g.current.empty() && !g.ending || g.leaving != nil && !g.leaving.saved {
		return false
	}
	ok := true
	look := func(id uint8) {
		ch := g.channels[id].ch
		ok = ok && (ch == nil || ch.saved)
	}
	g.pending.bind.each(look)
	g.binding.each(look)
	return ok
}

// deferInvalidate defers an invalidate and reports whether it could. Guest.mu is held.
func (g *Guest) deferInvalidate(v *invalidations) bool {
	if g.policy.Sync != shadowpt.SyncLazy {
		return false
	}
	if ch := g.leaving; ch != nil && v.has(ch.space.key) && !ch.hw.Quiet() {
		return false
	}
	// A space without a channel has no shadow, and a new shadow reads all tables. Newly
	// mapped memory concerns all spaces.
	var deferred invalidations
	if g.remapped[0] != g.remapped[1] {
		deferred = *v
	}
	for i := range g.channels {
		ch := g.channels[i].ch
		if ch == nil || !v.has(ch.space.key) {
			continue
		}
		if g.agg.gate.Waiting(ch) || !ch.hw.Quiet() {
			return false
		}
		deferred.all = v.all
		deferred.add(ch.space.key)
	}
	g.deferred.merge(deferred)
	g.stats.LazyInvalidates.Add(1)
	return true
}

// needsFlush reports whether a deferred invalidate must be flushed before a channel runs.
// Guest.mu is held.
func (g *Guest) needsFlush(ch *boundChannel) bool {
	return g.deferred.any() && g.deferred.has(ch.space.key)
}

// flushDeferred schedules all deferred invalidates for the next round. Guest.mu is held.
func (g *Guest) flushDeferred() {
	g.pending.invalidate.merge(g.deferred)
	g.deferred = invalidations{}
	g.wake.Broadcast()
}

// update updates the shadows that v names, each once a round. If v names none, it updates
// all: eagerly applied entries may be in any.
func (g *Guest) update(v *invalidations) {
	which := g.due(v)
	g.mu.Lock()
	remapped, lost := g.remapped, g.lost
	if g.following || len(which) == len(g.spaces) { // then every space is updated
		g.remapped, g.lost = [2]uint64{}, false
	}
	g.mu.Unlock()
	if !g.following {
		for _, sp := range which {
			g.build(sp, lost)
		}
		return
	}
	if len(which) == 0 && remapped[0] == remapped[1] {
		return
	}
	g.timed(nil, lost, func() {
		if remapped[0] != remapped[1] {
			g.tracker.Remapped(remapped[0], remapped[1]-remapped[0])
		}
		if len(which) == len(g.spaces) {
			g.tracker.Update()
			return
		}
		shadows := make([]*shadowpt.Shadow, len(which))
		for i, sp := range which {
			shadows[i] = sp.shadow
		}
		g.tracker.UpdateOnly(shadows...)
	})
	if len(which) == 0 {
		return // only the memory map changed
	}
	for _, sp := range which {
		sp.fresh = true
	}
	g.stats.Scans.Add(1)
}

// due lists the spaces that v names, or all if it names none, without those already
// updated in this round.
func (g *Guest) due(v *invalidations) (list []*space) {
	for key, sp := range g.spaces {
		if !sp.fresh && (v.has(key) || !v.any()) {
			list = append(list, sp)
		}
	}
	return list
}

// build builds a shadow from all of the guest's tables, once a round. With lost, entries without
// memory count as lost.
func (g *Guest) build(sp *space, lost bool) {
	if sp.fresh {
		return
	}
	var made *shadowpt.Shadow
	if sp.refs == 0 {
		made = sp.shadow
	}
	sp.fresh = true
	g.timed(made, lost, func() {
		if g.following {
			g.tracker.Follow(sp.shadow)
		} else {
			sp.shadow.Rebuild()
		}
	})
	g.stats.Rebuilds.Add(1)
	if !g.following {
		g.stats.Scans.Add(1)
	}
}

// timed runs f on shadows and counts its cost, without the time given to others. If any
// shadow but made was written, the card must invalidate; the card has never walked made.
func (g *Guest) timed(made *shadowpt.Shadow, lost bool, f func()) {
	begin, away := time.Now(), g.tableMeter.away
	before := g.count()
	f()
	now := g.count()
	s := &g.stats
	foreign := &s.ForeignEntries
	if lost {
		foreign = &s.LostEntries
	}
	foreign.Add(now.Foreign - before.Foreign)
	s.ForeignTables.Add(now.Unread - before.Unread)
	s.TablesOverQuota.Add(now.NoRoom - before.NoRoom + now.Cut - before.Cut)
	s.EntriesExamined.Add(now.Examined - before.Examined)
	s.EntriesChanged.Add(now.Changed - before.Changed)
	s.EntriesRewritten.Add(now.Rewritten - before.Rewritten)
	s.BytesCompared.Add(now.Compared - before.Compared)
	if made != nil {
		before.Rewritten += made.Counts.Rewritten
	}
	g.stale = g.stale || now.Rewritten != before.Rewritten
	end := time.Now()
	s.ShadowTime.Add(int64(end.Sub(begin) - (g.tableMeter.away - away)))
	g.tableMeter.spend(now.Examined - before.Examined + perChange*(now.Changed-before.Changed))
	work := g.tableMeter.work - s.TableWork.Load() // includes tables cleared since the last call
	s.TableWork.Add(work)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tableBudget.spend(end, g.agg.opts.TableRate, float64(work))
}

// count sums the counts of all shadows.
func (g *Guest) count() shadowpt.Counts {
	c := g.tracker.Counts
	for _, sp := range g.spaces {
		c.Add(sp.shadow.Counts)
	}
	return c
}

// follow changes how the shadows are maintained. Their content stays correct throughout.
func (g *Guest) follow(p shadowpt.Policy) {
	incremental := p.Scan == shadowpt.ScanIncremental
	if incremental != g.following {
		for _, sp := range g.spaces {
			sp.fresh = false
			if g.following {
				g.tracker.Unfollow(sp.shadow)
			}
		}
		g.following = incremental
		for _, sp := range g.spaces {
			g.build(sp, false)
		}
		// A full scan leaves the tracker without entries. After this invalidate it reads
		// all tables again.
		g.invalidateCard()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setPolicy(p)
	if p.Sync != shadowpt.SyncLazy {
		g.flushDeferred()
	}
}

// throttle waits while the guest's table work exceeds its rate, unless a reset
// arrives. Guest.mu is held.
func (g *Guest) throttle() {
	burst := 4 * float64(g.limits.Tables)
	for !g.closing && !g.pending.reset {
		now := time.Now()
		d := g.tableBudget.due(now, g.agg.opts.TableRate, burst)
		if d == 0 {
			return
		}
		t := time.AfterFunc(d, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.wake.Broadcast()
		})
		g.wake.Wait()
		t.Stop()
		g.stats.ThrottleTime.Add(int64(time.Since(now)))
	}
}
