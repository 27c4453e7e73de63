package aggregator

import (
	"time"

	"github.com/umbra-gpu/umbra/shadowpt"
)

// When and how shadows are brought up to date: shadowpt.Policy, in practice.
//
// A guest's tables are data until a flush point: work that could see them is
// given to the card, or an invalidate comes while a channel of the space has
// something left to do. A lazy policy puts off an invalidate that comes while
// every channel of its space is quiet: it is owed, and as far as the guest can
// see it is done. No engine walks the shadow then, and none will before
// submit, run or a runlist, which see to it that what is owed is done first. A channel
// that is about to go, or is being taken off the card, is as good as quiet when it has
// nothing left to do: it does not run again, so nothing is done for it, and nobody waits.
// Memory that goes is taken away at once, whatever the policy.

// setPolicy makes what traps look at follow a policy. Guest.mu is held, or nobody
// else knows the guest.
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

// SetShadow changes it. It returns when the shadows are kept that way; the guest
// notices nothing.
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

// wrote is called after each write to the guest's VRAM that we know of.
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

// mayPutOff reports whether an invalidate may be owed now, if its channels are quiet: nothing
// is under way that lets a channel run, what is still to come pays first, and no channel that
// is about to go has something to be written to its guest's memory. A guest that has been told
// that its invalidate is done may use that for something else. Guest.mu is held.
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

// putOff reports whether an invalidate may be owed. Guest.mu is held.
func (g *Guest) deferInvalidate(v *invalidations) bool {
	if g.policy.Sync != shadowpt.SyncLazy || v.unmapped {
		return false
	}
	if ch := g.leaving; ch != nil && v.has(ch.space.key) && !g.agg.ctl.quiet(ch.id) {
		return false
	}
	// What no channel has no shadow is of, and who makes one reads all. Memory that has come
	// is for all.
	var owed invalidations
	if g.remapped[0] != g.remapped[1] {
		owed = *v
	}
	for i := range g.channels {
		ch := g.channels[i].ch
		if ch == nil || !v.has(ch.space.key) {
			continue
		}
		if ch.active && (ch.waits() || !g.agg.ctl.quiet(ch.id)) {
			return false
		}
		ch.active = false
		owed.all = v.all
		owed.add(ch.space.key)
	}
	g.deferred.merge(owed)
	g.stats.LazyInvalidates.Add(1)
	return true
}

// owes reports whether a channel may not run before something owed is done.
// Guest.mu is held.
func (g *Guest) needsFlush(ch *channel) bool { return g.deferred.any() && g.deferred.has(ch.space.key) }

// pay has everything that is owed done in the next round. Guest.mu is held.
func (g *Guest) flushDeferred() {
	g.pending.invalidate.merge(g.deferred)
	g.deferred = invalidations{}
	g.wake.Broadcast()
}

// bring brings the shadows up to date that v names, each once a round. If it names
// none, entries were written that are to be applied at once: they are looked for in all.
func (g *Guest) bring(v *invalidations) {
	which := g.due(v)
	if !g.following {
		for _, sp := range which {
			g.build(sp)
		}
		return
	}
	g.mu.Lock()
	remapped := g.remapped
	g.remapped = [2]uint64{}
	g.mu.Unlock()
	if len(which) == 0 && remapped[0] == remapped[1] {
		return
	}
	g.timed(nil, func() {
		if remapped[0] != remapped[1] {
			g.tracker.Moved(remapped[0], remapped[1]-remapped[0])
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
		return // there was only memory that its client moved
	}
	for _, sp := range which {
		sp.fresh = true
	}
	g.stats.Scans.Add(1)
}

// due lists the spaces that v names, all if it names none, without those that were
// brought up to date in the round under way.
func (g *Guest) due(v *invalidations) (list []*space) {
	for key, sp := range g.spaces {
		if !sp.fresh && (v.has(key) || !v.any()) {
			list = append(list, sp)
		}
	}
	return list
}

// build makes a shadow from all of the guest's tables, once a round.
func (g *Guest) build(sp *space) {
	if sp.fresh {
		return
	}
	var made *shadowpt.Shadow
	if sp.refs == 0 {
		made = sp.shadow
	}
	sp.fresh = true
	g.timed(made, func() {
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

// timed does something to shadows, and counts what it took, without the turns of
// others. If any was written but made, which the card has never walked, the card has to
// forget what they were.
func (g *Guest) timed(made *shadowpt.Shadow, f func()) {
	begin, away := time.Now(), g.tableMeter.away
	before := g.count()
	f()
	now := g.count()
	s := &g.stats
	foreign := &s.ForeignEntries
	if g.current.invalidate.unmapped {
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
	work := g.tableMeter.work - s.TableWork.Load() // and what was cleared since
	s.TableWork.Add(work)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tableBudget.spend(end, g.agg.opts.TableRate, float64(work))
}

// count sums up what all shadows took.
func (g *Guest) count() shadowpt.Counts {
	c := g.tracker.Counts
	for _, sp := range g.spaces {
		c.Add(sp.shadow.Counts)
	}
	return c
}

// follow makes the shadows be kept like a new policy says. What they hold stays
// right throughout.
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
			g.build(sp)
		}
		// The entries that a full scan made were not counted: when the card has
		// forgotten them, the tracker looks at all tables again.
		g.invalidateCard()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.setPolicy(p)
	if p.Sync != shadowpt.SyncLazy {
		g.flushDeferred()
	}
}

// pace is a bucket that leaks: work on shadows fills it, time empties it.
type pace struct {
	level float64
	at    time.Time
}

func (p *pace) spend(now time.Time, rate, n float64) {
	p.level = max(0, p.level-rate*now.Sub(p.at).Seconds()) + n
	p.at = now
}

// longestWait is how long is waited before it is asked again. No amount of work comes to a
// time that a Duration does not hold.
const longestWait = time.Hour

// due says how long to wait until no more than burst is in the bucket, or until it is to be
// asked again.
func (p *pace) due(now time.Time, rate, burst float64) time.Duration {
	over := p.level - rate*now.Sub(p.at).Seconds() - burst
	seconds := min(max(0, over)/rate, longestWait.Seconds())
	return time.Duration(seconds * float64(time.Second))
}

// throttle waits while the guest's shadows have taken more than their rate,
// unless something comes that must not wait. Guest.mu is held.
func (g *Guest) throttle() {
	burst := 4 * float64(g.limits.Tables)
	for !g.closing && !g.pending.urgent() {
		now := time.Now()
		d := g.tableBudget.due(now, g.agg.opts.TableRate, burst)
		if d == 0 {
			return
		}
		t := time.AfterFunc(d, g.lookUp)
		g.wake.Wait()
		t.Stop()
		g.stats.ThrottleTime.Add(int64(time.Since(now)))
	}
}
